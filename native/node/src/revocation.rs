//! Revocations: the owner's word that what one block of a token allowed is over.
//!
//! A record is 104 bytes: the block's id, when the token would have ended anyway, and the
//! owner's signature. Whoever brings one needs no trust. They are kept until the token would
//! have ended; the digest of the set travels in every hello.

use std::collections::BTreeMap;

use libp2p::identity::{Keypair, PublicKey};

const CONTEXT: &[u8] = b"mycel-revocation-v1\0";
const ID_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
const SIGNED_BYTES: usize = ID_BYTES + EXPIRY_BYTES;
pub const RECORD_BYTES: usize = SIGNED_BYTES + 64;

pub type Id = [u8; ID_BYTES];

pub fn sign(owner: &Keypair, swarm: &str, id: &Id, expires_at: u64) -> Option<Vec<u8>> {
    let mut record = id.to_vec();
    record.extend_from_slice(&expires_at.to_be_bytes());
    let signature = owner.sign(&signed_bytes(swarm, &record)).ok()?;
    record.extend_from_slice(&signature);
    (record.len() == RECORD_BYTES).then_some(record)
}

/// What a record says, if the owner of this swarm signed it.
pub fn read(owner: &PublicKey, swarm: &str, record: &[u8]) -> Option<(Id, u64)> {
    if record.len() != RECORD_BYTES {
        return None;
    }
    let (signed, signature) = record.split_at(SIGNED_BYTES);
    if !owner.verify(&signed_bytes(swarm, signed), signature) {
        return None;
    }
    let (id, expires_at) = signed.split_first_chunk()?;
    Some((*id, u64::from_be_bytes(expires_at.try_into().ok()?)))
}

/// The gossip topic of revocations.
pub fn topic(swarm: &str) -> String {
    format!("mycel/{swarm}/revocations")
}

/// The records of a gossip message: a MessagePack array of binaries. Nothing if it is anything
/// else, or empty.
pub fn unpack(message: &[u8]) -> Option<Vec<&[u8]>> {
    const BINARY: [u8; 2] = [0xc4, RECORD_BYTES as u8];
    let (count, records) = match message {
        [head @ 0x90..=0x9f, rest @ ..] => (usize::from(head & 0x0f), rest),
        [0xdc, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    let each = BINARY.len() + RECORD_BYTES;
    if count == 0 || records.len() != count * each {
        return None;
    }
    records.chunks_exact(each).map(|record| record.strip_prefix(&BINARY)).collect()
}

/// When the token of a record would have ended; nothing that is said here is signed yet.
pub fn ends_at(record: &[u8]) -> Option<u64> {
    let bytes = record.get(ID_BYTES..SIGNED_BYTES)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn signed_bytes(swarm: &str, record: &[u8]) -> Vec<u8> {
    let mut bytes = CONTEXT.to_vec();
    bytes.extend_from_slice(&(swarm.len() as u64).to_be_bytes());
    bytes.extend_from_slice(swarm.as_bytes());
    bytes.extend_from_slice(record);
    bytes
}

/// What this node knows to be revoked.
pub struct Revocations {
    capacity: usize,
    expiries: BTreeMap<Id, u64>,
    /// Of all ids, each hashed and combined by xor: one comes and goes without the others.
    digest: Id,
}

impl Revocations {
    pub fn new(capacity: usize) -> Revocations {
        Revocations { capacity, expiries: BTreeMap::new(), digest: [0; ID_BYTES] }
    }

    /// Whether it was news.
    pub fn insert(&mut self, id: Id, expires_at: u64) -> bool {
        if self.expiries.contains_key(&id) {
            return false;
        }
        if self.expiries.len() >= self.capacity {
            // The one that ends first does the least harm if it is forgotten.
            let first = self.expiries.iter().min_by_key(|(_, ends)| **ends);
            let Some((id, ends)) = first.map(|(id, ends)| (*id, *ends)) else { return false };
            if ends >= expires_at {
                return false;
            }
            self.expiries.remove(&id);
            self.toggle(&id);
        }
        self.expiries.insert(id, expires_at);
        self.toggle(&id);
        true
    }

    fn toggle(&mut self, id: &Id) {
        let hash = blake3::hash(id);
        self.digest.iter_mut().zip(hash.as_bytes()).for_each(|(sum, byte)| *sum ^= byte);
    }

    pub fn revokes(&self, ids: &[Id]) -> bool {
        !self.expiries.is_empty() && ids.iter().any(|id| self.expiries.contains_key(id))
    }

    /// Forgets what has ended by itself.
    pub fn prune(&mut self, wall_seconds: u64, tolerance_seconds: u64) {
        let over = |ends: &u64| ends.saturating_add(tolerance_seconds) <= wall_seconds;
        let ended: Vec<Id> =
            self.expiries.iter().filter(|(_, ends)| over(ends)).map(|(id, _)| *id).collect();
        for id in ended {
            self.expiries.remove(&id);
            self.toggle(&id);
        }
    }

    /// The same for the same set, in whatever order it came together.
    pub fn digest(&self) -> Id {
        self.digest
    }

    pub fn len(&self) -> usize {
        self.expiries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.expiries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_the_swarm_revokes() {
        let (owner, other) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
        let record = sign(&owner, "home", &[7; 32], 1000).expect("signs");
        assert_eq!(read(&owner.public(), "home", &record), Some(([7; 32], 1000)));
        assert_eq!(read(&owner.public(), "office", &record), None);
        assert_eq!(read(&other.public(), "home", &record), None);
        for cut in 0..RECORD_BYTES {
            assert_eq!(read(&owner.public(), "home", &record[..cut]), None);
        }
        for at in 0..RECORD_BYTES {
            let mut forged = record.clone();
            forged[at] ^= 1;
            assert_eq!(read(&owner.public(), "home", &forged), None);
        }
    }

    #[test]
    fn messages_hold_whole_records_and_nothing_else() {
        let record = [5; RECORD_BYTES];
        let packed = |count: usize, head: &[u8]| {
            let each = [&[0xc4, RECORD_BYTES as u8][..], &record].concat();
            [head.to_vec(), each.repeat(count)].concat()
        };
        assert_eq!(unpack(&packed(2, &[0x92])), Some(vec![&record[..]; 2]));
        assert_eq!(unpack(&packed(300, &[0xdc, 1, 44])).map(|all| all.len()), Some(300));
        for (count, head) in [(0, 0x90), (1, 0x92), (2, 0x91), (1, 0xc4), (1, 0x81)] {
            assert_eq!(unpack(&packed(count, &[head])), None);
        }
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[packed(1, &[0x91]), vec![0]].concat()), None);
    }

    #[test]
    fn the_set_has_a_limit_an_end_and_a_digest_without_order() {
        let mut one = Revocations::new(2);
        let mut two = Revocations::new(2);
        assert_eq!(one.digest(), two.digest());
        assert!(one.insert([1; 32], 100));
        assert!(!one.insert([1; 32], 100));
        assert_ne!(one.digest(), two.digest());
        assert!(one.insert([2; 32], 200));
        assert!(two.insert([2; 32], 200) && two.insert([1; 32], 100));
        assert_eq!(one.digest(), two.digest());
        assert!(one.insert([3; 32], 300), "the one that ends first makes room");
        assert!(!one.revokes(&[[1; 32]]) && one.revokes(&[[9; 32], [3; 32]]));
        assert!(!one.insert([4; 32], 50));
        one.prune(260, 60);
        let mut three = Revocations::new(1);
        assert!(three.insert([3; 32], 300));
        assert_eq!(one.digest(), three.digest());
        assert!(!one.revokes(&[[2; 32]]) && one.revokes(&[[3; 32]]));
        assert_eq!(one.len(), 1);
    }
}
