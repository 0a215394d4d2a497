//! Identities and membership tokens.

use std::str::FromStr;

use mycel_node::{
    identity as keys,
    libp2p::PeerId,
    membership::{self, Membership},
};
use pyo3::{prelude::*, types::PyBytes};

use crate::errors::{InvalidAddress, InvalidKey, InvalidToken};

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

/// A membership token: the owner's signature over peer id, expiry (seconds since 1970)
/// and roles (a bit mask).
#[pyfunction]
pub fn issue_token<'py>(
    py: Python<'py>,
    owner_secret: &[u8],
    peer_id: &str,
    expires_at: u64,
    roles: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let owner = keys::keypair(owner_secret).map_err(invalid_key)?;
    let peer = self::peer_id(peer_id)?;
    let membership = Membership { expires_at, roles };
    let token = membership::issue(&owner, &peer, membership)
        .map_err(|error| InvalidToken::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &token))
}

/// Expiry and roles of a token, if the owner signed it for this peer. An expired token is
/// shown like any other: what it is worth is the caller's question.
#[pyfunction]
pub fn inspect_token(owner_public: &[u8], peer_id: &str, token: &[u8]) -> PyResult<(u64, u32)> {
    let owner = keys::public_key(owner_public).map_err(invalid_key)?;
    let peer = self::peer_id(peer_id)?;
    let membership = membership::inspect(&owner, &peer, token)
        .map_err(|error| InvalidToken::new_err(error.to_string()))?;
    Ok((membership.expires_at, membership.roles))
}
