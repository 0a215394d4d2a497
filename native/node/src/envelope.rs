//! What a node signs with its identity: gossip messages and records of the DHT.
//!
//! ```text
//!   [version 1][public key 32][sequence 8][time 8][payload …][signature 64]
//! ```
//!
//! Numbers are big-endian. `time` is in milliseconds since 1970: when a message was sent,
//! when a record ends. The signature also covers what is not sent along, because the
//! receiver knows it: the kind, the swarm's name, and the topic or key. An envelope is
//! therefore worth nothing elsewhere.

use libp2p::{
    PeerId,
    identity::{Keypair, PublicKey, ed25519},
};

use crate::identity::{self, KeyError};

const VERSION: u8 = 1;
const PUBLIC_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// What an envelope adds to its payload.
pub const OVERHEAD_BYTES: usize = 1 + PUBLIC_BYTES + 8 + 8 + SIGNATURE_BYTES;

/// What an envelope is about.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    Gossip { topic: &'a str },
    Record { key: &'a [u8] },
}

impl Subject<'_> {
    fn parts(&self) -> (&'static [u8], &[u8]) {
        match self {
            Subject::Gossip { topic } => (b"mycel-gossip-v1", topic.as_bytes()),
            Subject::Record { key } => (b"mycel-record-v1", key),
        }
    }
}

/// This node's signature, in one swarm.
pub struct Signer {
    key: Keypair,
    public: [u8; PUBLIC_BYTES],
    pub swarm: String,
}

impl Signer {
    pub fn new(key: Keypair, swarm: String) -> Result<Signer, KeyError> {
        let public = identity::public_bytes(&key)?;
        Ok(Signer { key, public, swarm })
    }

    pub fn peer(&self) -> PeerId {
        self.key.public().to_peer_id()
    }

    pub fn seal(
        &self,
        subject: Subject<'_>,
        sequence: u64,
        time_ms: u64,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OVERHEAD_BYTES + payload.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.public);
        bytes.extend_from_slice(&sequence.to_be_bytes());
        bytes.extend_from_slice(&time_ms.to_be_bytes());
        bytes.extend_from_slice(payload);
        let signed = signed_bytes(&self.swarm, subject, sequence, time_ms, payload);
        // An Ed25519 key can always sign; a signature that is missing is refused by others.
        bytes.extend_from_slice(&self.key.sign(&signed).unwrap_or_default());
        bytes
    }
}

/// An envelope as it came; nothing in it is to be believed before `is_signed`.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    public: &'a [u8; PUBLIC_BYTES],
    pub sequence: u64,
    pub time_ms: u64,
    pub payload: &'a [u8],
    signature: &'a [u8; SIGNATURE_BYTES],
}

impl<'a> Envelope<'a> {
    /// Nothing if it is no envelope of this version.
    pub fn parse(bytes: &'a [u8]) -> Option<Envelope<'a>> {
        let (&[VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (public, rest) = rest.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (time_ms, rest) = rest.split_first_chunk()?;
        let (payload, signature) = rest.split_last_chunk()?;
        let (sequence, time_ms) = (u64::from_be_bytes(*sequence), u64::from_be_bytes(*time_ms));
        Some(Envelope { public, sequence, time_ms, payload, signature })
    }

    /// Who claims to have signed it, and whether that is so.
    pub fn is_signed(&self, swarm: &str, subject: Subject<'_>) -> Option<PeerId> {
        let public = ed25519::PublicKey::try_from_bytes(self.public).ok()?;
        let signed = signed_bytes(swarm, subject, self.sequence, self.time_ms, self.payload);
        public.verify(&signed, self.signature).then(|| PublicKey::from(public).to_peer_id())
    }
}

/// Every part of variable length is preceded by its length: no two envelopes that differ
/// have the same bytes to sign.
fn signed_bytes(
    swarm: &str,
    subject: Subject<'_>,
    sequence: u64,
    time_ms: u64,
    payload: &[u8],
) -> Vec<u8> {
    let (domain, name) = subject.parts();
    let mut bytes = Vec::with_capacity(64 + swarm.len() + name.len() + payload.len());
    for part in [domain, swarm.as_bytes(), name] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&time_ms.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: Subject<'static> = Subject::Gossip { topic: "news" };

    fn signer() -> Signer {
        Signer::new(Keypair::generate_ed25519(), "here".into()).expect("an Ed25519 key")
    }

    #[test]
    fn what_was_sealed_is_known_by_its_author() {
        let signer = signer();
        let sealed = signer.seal(NEWS, 7, 1000, b"hello");
        assert_eq!(sealed.len(), OVERHEAD_BYTES + 5);
        let envelope = Envelope::parse(&sealed).expect("is whole");
        assert_eq!((envelope.sequence, envelope.time_ms), (7, 1000));
        assert_eq!(envelope.payload, b"hello");
        assert_eq!(envelope.is_signed("here", NEWS), Some(signer.peer()));
    }

    #[test]
    fn it_is_worth_nothing_elsewhere() {
        let sealed = signer().seal(NEWS, 7, 1000, b"hello");
        let envelope = Envelope::parse(&sealed).expect("is whole");
        assert_eq!(envelope.is_signed("there", NEWS), None);
        assert_eq!(envelope.is_signed("here", Subject::Gossip { topic: "olds" }), None);
        assert_eq!(envelope.is_signed("here", Subject::Record { key: b"news" }), None);
    }

    #[test]
    fn every_changed_byte_breaks_it() {
        let sealed = signer().seal(NEWS, 7, 1000, b"hello");
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            let signed = Envelope::parse(&forged).and_then(|e| e.is_signed("here", NEWS));
            assert_eq!(signed, None, "byte {at}");
        }
        for end in 0..sealed.len() {
            let signed = Envelope::parse(&sealed[..end]).and_then(|e| e.is_signed("here", NEWS));
            assert_eq!(signed, None, "cut at {end}");
        }
    }
}
