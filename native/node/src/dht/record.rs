//! A peer's signed record: only the peer itself can put it at its own key.

use libp2p::{PeerId, kad};

use crate::envelope::{Envelope, OVERHEAD_BYTES, Signer, Subject};

const PREFIX: &str = "/mycel/worker/";
/// Beyond this no record may promise to be good.
const LONGEST_LIFETIME_MS: u64 = 24 * 3600 * 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedRecord {
    pub peer: PeerId,
    /// Empty when the peer has withdrawn its record.
    pub payload: Vec<u8>,
    pub sequence: u64,
    pub expires_at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("no key of ours")]
    Key,
    #[error("too long")]
    TooLong,
    #[error("no envelope")]
    Malformed,
    #[error("not signed by the peer whose key it has")]
    Signature,
    #[error("expired, or good for too long")]
    Expiry,
    #[error("older than the one that is known")]
    Outdated,
    #[error("no room")]
    Full,
}

impl RecordError {
    /// Whether no honest node sends such a record. One that has just expired, or is not the
    /// newest any more, may come from anybody.
    pub fn is_forgery(self) -> bool {
        match self {
            RecordError::Key
            | RecordError::TooLong
            | RecordError::Malformed
            | RecordError::Signature => true,
            RecordError::Expiry | RecordError::Outdated | RecordError::Full => false,
        }
    }
}

/// What the rules of one swarm make of a record.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub max_bytes: usize,
    pub tolerance_ms: u64,
}

pub fn key_of(peer: &PeerId) -> kad::RecordKey {
    kad::RecordKey::new(&format!("{PREFIX}{peer}"))
}

fn peer_of(key: &kad::RecordKey) -> Option<PeerId> {
    let text = std::str::from_utf8(key.as_ref()).ok()?;
    text.strip_prefix(PREFIX)?.parse().ok()
}

pub fn seal(signer: &Signer, payload: &[u8], sequence: u64, expires_at_ms: u64) -> kad::Record {
    let key = key_of(&signer.peer());
    let subject = Subject::Record { key: key.as_ref() };
    let value = signer.seal(subject, sequence, expires_at_ms, payload);
    kad::Record::new(key, value)
}

impl Rules {
    /// What a record says, if it may be believed at this time. The cheap looks come first.
    pub fn check(
        &self,
        swarm: &str,
        key: &kad::RecordKey,
        value: &[u8],
        now_ms: u64,
    ) -> Result<SignedRecord, RecordError> {
        let peer = peer_of(key).ok_or(RecordError::Key)?;
        if value.len() > self.max_bytes + OVERHEAD_BYTES {
            return Err(RecordError::TooLong);
        }
        let envelope = Envelope::parse(value).ok_or(RecordError::Malformed)?;
        let expires_at_ms = envelope.time_ms;
        if expires_at_ms.saturating_add(self.tolerance_ms) <= now_ms
            || expires_at_ms.saturating_sub(now_ms) > LONGEST_LIFETIME_MS + self.tolerance_ms
        {
            return Err(RecordError::Expiry);
        }
        if envelope.is_signed(swarm, Subject::Record { key: key.as_ref() }) != Some(peer) {
            return Err(RecordError::Signature);
        }
        let (payload, sequence) = (envelope.payload.to_vec(), envelope.sequence);
        Ok(SignedRecord { peer, payload, sequence, expires_at_ms })
    }
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    const RULES: Rules = Rules { max_bytes: 100, tolerance_ms: 1000 };
    const NOW_MS: u64 = 1_000_000;

    fn signer() -> Signer {
        Signer::new(Keypair::generate_ed25519(), "here".into()).expect("a key")
    }

    fn check(record: &kad::Record) -> Result<SignedRecord, RecordError> {
        RULES.check("here", &record.key, &record.value, NOW_MS)
    }

    #[test]
    fn a_record_is_good_at_its_own_key_until_it_ends() {
        let signer = signer();
        let record = seal(&signer, b"gpu", 3, NOW_MS + 5000);
        let found = check(&record).expect("is good");
        assert_eq!(found.peer, signer.peer());
        assert_eq!((found.payload.as_slice(), found.sequence), (b"gpu".as_slice(), 3));
        let later = RULES.check("here", &record.key, &record.value, NOW_MS + 5999);
        assert!(later.is_ok());
        let ended = RULES.check("here", &record.key, &record.value, NOW_MS + 6000);
        assert_eq!(ended, Err(RecordError::Expiry));
        let elsewhere = RULES.check("there", &record.key, &record.value, NOW_MS);
        assert_eq!(elsewhere, Err(RecordError::Signature));
    }

    #[test]
    fn nobody_can_sign_for_another() {
        let (signer, thief) = (signer(), signer());
        let mut record = seal(&thief, b"gpu", 3, NOW_MS + 5000);
        record.key = key_of(&signer.peer());
        assert_eq!(check(&record), Err(RecordError::Signature));
        let key = key_of(&signer.peer());
        let subject = Subject::Record { key: key.as_ref() };
        let value = thief.seal(subject, 3, NOW_MS + 5000, b"gpu");
        assert_eq!(check(&kad::Record::new(key, value)), Err(RecordError::Signature));
    }

    #[test]
    fn what_is_no_record_of_ours_is_refused() {
        let signer = signer();
        let mut record = seal(&signer, b"gpu", 3, NOW_MS + 5000);
        record.key = kad::RecordKey::new(b"/other/key");
        assert_eq!(check(&record), Err(RecordError::Key));
        let nonsense = kad::Record::new(key_of(&signer.peer()), vec![1; 80]);
        assert_eq!(check(&nonsense), Err(RecordError::Malformed));
        assert_eq!(check(&seal(&signer, &[0; 101], 3, NOW_MS + 5000)), Err(RecordError::TooLong));
        let endless = seal(&signer, b"", 3, u64::MAX);
        assert_eq!(check(&endless), Err(RecordError::Expiry));
    }
}
