//! Identities.

use std::str::FromStr;

use mycel_node::{
    identity as keys,
    libp2p::{PeerId, identity::PublicKey},
};
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

/// The Ed25519 public key that a peer id holds.
#[pyfunction]
pub fn public_key_of<'py>(py: Python<'py>, peer: &str) -> PyResult<Bound<'py, PyBytes>> {
    let id = peer_id(peer)?;
    let hash = id.as_ref();
    // Those of other keys are digests.
    let key = (hash.code() == 0).then(|| PublicKey::try_decode_protobuf(hash.digest()).ok());
    let key = key.flatten().and_then(|key| key.try_into_ed25519().ok());
    let key = key.ok_or_else(|| InvalidKey::new_err(format!("{peer} is of no Ed25519 key")))?;
    Ok(PyBytes::new(py, &key.to_bytes()))
}
