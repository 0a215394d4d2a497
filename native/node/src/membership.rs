//! Membership tokens: the swarm owner's signature over (peer id, expiry, roles).
//!
//! A token is bound to one peer id, and Noise has proven the peer id before the gate
//! looks at the token: it is useless to anybody who overhears it.

use libp2p::{
    PeerId,
    identity::{Keypair, PublicKey},
};

const CONTEXT: &[u8] = b"mycel-membership-v1\0";
const EXPIRY_BYTES: usize = 8;
const ROLES_BYTES: usize = 4;
const SIGNATURE_BYTES: usize = 64;
pub const TOKEN_BYTES: usize = EXPIRY_BYTES + ROLES_BYTES + SIGNATURE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Seconds of wall time since 1970.
    pub expires_at: u64,
    /// A bit mask: gateway 1, scheduler 2, worker 4, cluster 8.
    pub roles: u32,
}

impl Membership {
    /// Machines' clocks differ: `tolerance_seconds` are granted beyond the expiry.
    pub fn has_expired(&self, wall_seconds: u64, tolerance_seconds: u64) -> bool {
        self.expires_at.saturating_add(tolerance_seconds) <= wall_seconds
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("token has the wrong length")]
    Length,
    #[error("token is not signed by the swarm's owner for this peer")]
    Signature,
    #[error("token has expired")]
    Expired,
    #[error("the owner's key cannot sign")]
    Signing,
}

pub fn issue(
    owner: &Keypair,
    peer: &PeerId,
    membership: Membership,
) -> Result<Vec<u8>, TokenError> {
    let signature =
        owner.sign(&signed_bytes(peer, &membership)).map_err(|_| TokenError::Signing)?;
    let mut token = Vec::with_capacity(TOKEN_BYTES);
    token.extend_from_slice(&membership.expires_at.to_be_bytes());
    token.extend_from_slice(&membership.roles.to_be_bytes());
    token.extend_from_slice(&signature);
    Ok(token)
}

/// What a token says, if the owner signed it for this peer; expiry is not judged here.
pub fn inspect(owner: &PublicKey, peer: &PeerId, token: &[u8]) -> Result<Membership, TokenError> {
    let (expires_at, rest) = token.split_first_chunk().ok_or(TokenError::Length)?;
    let (roles, signature) = rest.split_first_chunk().ok_or(TokenError::Length)?;
    if signature.len() != SIGNATURE_BYTES {
        return Err(TokenError::Length);
    }
    let membership = Membership {
        expires_at: u64::from_be_bytes(*expires_at),
        roles: u32::from_be_bytes(*roles),
    };
    match owner.verify(&signed_bytes(peer, &membership), signature) {
        true => Ok(membership),
        false => Err(TokenError::Signature),
    }
}

fn signed_bytes(peer: &PeerId, membership: &Membership) -> Vec<u8> {
    let mut bytes = CONTEXT.to_vec();
    bytes.extend_from_slice(&peer.to_bytes());
    bytes.extend_from_slice(&membership.expires_at.to_be_bytes());
    bytes.extend_from_slice(&membership.roles.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_peer_of_one_owner() {
        let (owner, other) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
        let (peer, thief) = (PeerId::random(), PeerId::random());
        let membership = Membership { expires_at: 1000, roles: 5 };
        let token = issue(&owner, &peer, membership).expect("signs");
        assert_eq!(inspect(&owner.public(), &peer, &token), Ok(membership));
        assert_eq!(inspect(&owner.public(), &thief, &token), Err(TokenError::Signature));
        assert_eq!(inspect(&other.public(), &peer, &token), Err(TokenError::Signature));
        for cut in 0..TOKEN_BYTES {
            let short = inspect(&owner.public(), &peer, &token[..cut]);
            assert_eq!(short, Err(TokenError::Length));
        }
        for at in 0..TOKEN_BYTES {
            let mut forged = token.clone();
            forged[at] ^= 1;
            let verdict = inspect(&owner.public(), &peer, &forged);
            assert_eq!(verdict, Err(TokenError::Signature));
        }
    }

    #[test]
    fn expiry_grants_the_tolerance_and_no_more() {
        let membership = Membership { expires_at: 1000, roles: 1 };
        assert!(!membership.has_expired(1059, 60));
        assert!(membership.has_expired(1060, 60));
        let endless = Membership { expires_at: u64::MAX, roles: 1 };
        assert!(!endless.has_expired(u64::MAX - 1, 60));
    }
}
