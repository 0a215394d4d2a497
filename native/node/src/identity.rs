//! Keys as they come from outside: 32 bytes of Ed25519.

use libp2p::identity::{Keypair, PublicKey, ed25519};

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a secret key has 32 bytes, not {0}")]
    SecretLength(usize),
    #[error("not an Ed25519 secret key")]
    Secret,
    #[error("not an Ed25519 public key of 32 bytes")]
    Public,
}

pub fn keypair(secret: &[u8]) -> Result<Keypair, KeyError> {
    if secret.len() != 32 {
        return Err(KeyError::SecretLength(secret.len()));
    }
    Keypair::ed25519_from_bytes(secret.to_vec()).map_err(|_| KeyError::Secret)
}

pub fn public_key(bytes: &[u8]) -> Result<PublicKey, KeyError> {
    ed25519::PublicKey::try_from_bytes(bytes).map(PublicKey::from).map_err(|_| KeyError::Public)
}

/// The 32 bytes of an Ed25519 public key.
pub fn public_bytes(key: &Keypair) -> Result<[u8; 32], KeyError> {
    let public = key.public().try_into_ed25519().map_err(|_| KeyError::Public)?;
    Ok(public.to_bytes())
}
