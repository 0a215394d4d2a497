//! Identities.

use std::str::FromStr;

use mycel_node::{identity as keys, libp2p::PeerId};
use pyo3::{prelude::*, types::PyBytes};

use crate::errors::{InvalidAddress, InvalidKey};

pub fn invalid_key(error: keys::KeyError) -> PyErr {
    InvalidKey::new_err(error.to_string())
}

pub fn peer_id(text: &str) -> PyResult<PeerId> {
    PeerId::from_str(text)
        .map_err(|error| InvalidAddress::new_err(format!("{text:?} is no peer id: {error}")))
}

/// The public key and the peer id that belong to an Ed25519 secret of 32 bytes.
#[pyfunction]
pub fn identity<'py>(py: Python<'py>, secret: &[u8]) -> PyResult<(Bound<'py, PyBytes>, String)> {
    let key = keys::keypair(secret).map_err(invalid_key)?;
    let public = keys::public_bytes(&key).map_err(invalid_key)?;
    Ok((PyBytes::new(py, &public), key.public().to_peer_id().to_base58()))
}
