//! Who has joined by which invite: a small file that the gateways of one home folder share.
//!
//! A record is on disk before the answer that it stands for leaves. It names the peer, so that
//! whoever asks again, because the answer was lost or a process was killed, is not counted again.
//! The lock has a file of its own, since the other is replaced when it is cleaned.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use libp2p::PeerId;

use crate::invite::{Quota, Serial};

/// Serial, place, the invite's end, the peer's digest, and a checksum of these.
const RECORD_BYTES: usize = 16 + 4 + 8 + 32 + CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = 4;
/// Longer than clocks may differ. An invite that ended so long ago admits nobody any more.
const KEPT_SECONDS: u64 = 3600;
/// Below this many records the file is not worth cleaning.
const CLEANED_FROM: usize = 1024;
/// A gateway that has so many guests at once takes no more before some invites have ended.
const RECORDS_MAX: usize = 1 << 20;

/// Less than a hello may take.
const LOCKED_WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// So many may join at this place.
    #[error("{0} may join, and as many have")]
    UsedUp(u32),
    #[error("too many have joined here")]
    Full,
    #[error(transparent)]
    Disk(#[from] io::Error),
}

pub struct Joins {
    path: PathBuf,
    lock_path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Record {
    serial: Serial,
    place: u32,
    expires_at: u64,
    peer: [u8; 32],
}

impl Joins {
    pub fn new(path: PathBuf) -> Joins {
        let mut lock_path = path.clone().into_os_string();
        lock_path.push(".lock");
        Joins { path, lock_path: lock_path.into() }
    }

    /// Counts the peer under every quota, durably, or says why not. Blocks for as long as the disk
    /// takes.
    pub fn enter(&self, peer: &PeerId, quotas: &[Quota], now: u64) -> Result<(), JoinError> {
        let _lock = Lock::take(&self.lock_path)?;
        let peer = *blake3::hash(&peer.to_bytes()).as_bytes();
        let (mut known, is_whole) = self.read()?;
        if !is_whole || is_worth_cleaning(&known, now) {
            known.retain(|one| !has_ended(one, now));
            self.replace(&known)?;
        }
        let mut missing = Vec::new();
        for quota in quotas {
            let joined =
                known.iter().filter(|one| one.serial == quota.serial && one.place == quota.place);
            let (mut count, mut is_known) = (0usize, false);
            for one in joined {
                count += 1;
                is_known |= one.peer == peer;
            }
            if !is_known {
                if count >= quota.joins as usize {
                    return Err(JoinError::UsedUp(quota.joins));
                }
                let Quota { serial, place, ends_at, .. } = *quota;
                missing.push(Record { serial, place, expires_at: ends_at, peer });
            }
        }
        if missing.is_empty() {
            // Whoever wrote it may have been killed before it was on disk.
            return Ok(File::open(&self.path)?.sync_data()?);
        }
        if known.len() + missing.len() > RECORDS_MAX {
            return Err(JoinError::Full);
        }
        self.append(&missing)
    }

    /// What is known, and whether the file held nothing else. A crash may leave the last records
    /// incomplete: no answer has left for them.
    fn read(&self) -> io::Result<(Vec<Record>, bool)> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((vec![], true)),
            Err(error) => return Err(error),
        };
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        let found: Vec<Option<Record>> = records.iter().map(Record::decode).collect();
        let good = found.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let is_whole = rest.is_empty() && good == found.len();
        let known: Vec<Record> = found[..good].iter().copied().flatten().collect();
        match known.len() == good {
            true => Ok((known, is_whole)),
            // To pass over it would let more join than may.
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "its records are damaged")),
        }
    }

    fn append(&self, records: &[Record]) -> Result<(), JoinError> {
        let is_new = !self.path.exists();
        let mut file = open(&self.path, OpenOptions::new().append(true).create(true))?;
        file.write_all(&encoded(records))?;
        file.sync_data()?;
        if is_new {
            self.sync_folder()?;
        }
        Ok(())
    }

    fn replace(&self, records: &[Record]) -> io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let mut file =
            open(Path::new(&beside), OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(&encoded(records))?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        self.sync_folder()
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..16].copy_from_slice(&self.serial);
        bytes[16..20].copy_from_slice(&self.place.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.expires_at.to_be_bytes());
        bytes[28..60].copy_from_slice(&self.peer);
        let checksum = blake3::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.as_bytes()[..CHECKSUM_BYTES]);
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let record = Record {
            serial: bytes[..16].try_into().ok()?,
            place: u32::from_be_bytes(bytes[16..20].try_into().ok()?),
            expires_at: u64::from_be_bytes(bytes[20..28].try_into().ok()?),
            peer: bytes[28..60].try_into().ok()?,
        };
        (record.encode() == *bytes).then_some(record)
    }
}

fn encoded(records: &[Record]) -> Vec<u8> {
    records.iter().flat_map(Record::encode).collect()
}

fn has_ended(record: &Record, now: u64) -> bool {
    record.expires_at.saturating_add(KEPT_SECONDS) <= now
}

fn is_worth_cleaning(records: &[Record], now: u64) -> bool {
    records.len() >= CLEANED_FROM
        && 2 * records.iter().filter(|one| has_ended(one, now)).count() > records.len()
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.mode(0o600).open(path)
}

/// Held until it is dropped, or the process ends in whatever way.
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> io::Result<Lock> {
        let file = open(path, OpenOptions::new().write(true).create(true).truncate(false))?;
        let ends_at = Instant::now() + LOCKED_WITHIN;
        loop {
            // SAFETY: the descriptor is open for as long as `file` lives.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Lock(file));
            }
            let error = io::Error::last_os_error();
            let is_held = error.kind() == io::ErrorKind::WouldBlock;
            match error.kind() == io::ErrorKind::Interrupted || is_held {
                true if Instant::now() < ends_at => thread::sleep(LOOK_AGAIN),
                // Whoever holds it may be stopped: its guests must not pile up here.
                _ => return Err(error),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: as above. To close it would do, unless a child is between fork and exec.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            let path = std::env::temp_dir().join(format!("mycel-joins-{}", PeerId::random()));
            fs::create_dir(&path).expect("a folder");
            Folder(path)
        }

        fn joins(&self) -> Joins {
            Joins::new(self.0.join("joins"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn quota(serial: u8, place: u32, joins: u32) -> Quota {
        Quota { serial: [serial; 16], place, joins, ends_at: 100 }
    }

    fn is_used_up(entered: Result<(), JoinError>) -> bool {
        matches!(entered, Err(JoinError::UsedUp(_)))
    }

    #[test]
    fn as_many_join_as_may_and_whoever_asks_again_is_not_counted_again() {
        let folder = Folder::new();
        let joins = folder.joins();
        let [one, two, three] = [PeerId::random(), PeerId::random(), PeerId::random()];
        for peer in [&one, &one, &two, &one, &two] {
            joins.enter(peer, &[quota(1, 0, 2)], 50).expect("it may join");
        }
        assert!(is_used_up(joins.enter(&three, &[quota(1, 0, 2)], 50)));
        joins.enter(&three, &[quota(1, 1, 2)], 50).expect("another place has its own count");
        joins.enter(&three, &[quota(2, 0, 1)], 50).expect("so has another invite");
        assert!(is_used_up(joins.enter(&PeerId::random(), &[quota(3, 0, 0)], 50)));
    }

    #[test]
    fn a_delegation_bounds_all_invites_that_were_made_by_it() {
        let folder = Folder::new();
        let joins = folder.joins();
        for invite in 10..12 {
            let quotas = [quota(1, 0, 2), quota(invite, 0, 5)];
            joins.enter(&PeerId::random(), &quotas, 50).expect("it may join");
        }
        let quotas = [quota(1, 0, 2), quota(12, 0, 5)];
        assert!(is_used_up(joins.enter(&PeerId::random(), &quotas, 50)));
        let known = folder.joins().read().expect("it is read").0;
        assert_eq!(known.len(), 4, "nothing is counted of whoever is refused");
    }

    #[test]
    fn gateways_of_one_folder_count_together() {
        let folder = Folder::new();
        let all: Vec<Arc<Joins>> = (0..8).map(|_| Arc::new(folder.joins())).collect();
        let enter = |joins: Arc<Joins>| {
            thread::spawn(move || {
                let entered =
                    (0..5).map(|_| joins.enter(&PeerId::random(), &[quota(1, 0, 7)], 50).is_ok());
                entered.filter(|entered| *entered).count()
            })
        };
        let threads: Vec<_> = all.into_iter().map(enter).collect();
        let entered: usize = threads.into_iter().map(|one| one.join().expect("it ends")).sum();
        assert_eq!(entered, 7);
    }

    #[test]
    fn a_stopped_process_that_holds_the_lock_keeps_nobody_waiting() {
        let folder = Folder::new();
        let joins = folder.joins();
        let held = Lock::take(&joins.lock_path).expect("it is free");
        let refused = joins.enter(&PeerId::random(), &[quota(1, 0, 1)], 50);
        assert!(matches!(refused, Err(JoinError::Disk(_))));
        drop(held);
        joins.enter(&PeerId::random(), &[quota(1, 0, 1)], 50).expect("it may join");
    }

    #[test]
    fn what_a_crash_left_incomplete_is_dropped_and_damage_is_told() {
        let folder = Folder::new();
        let (joins, path) = (folder.joins(), folder.0.join("joins"));
        let peers = [PeerId::random(), PeerId::random()];
        for peer in &peers {
            joins.enter(peer, &[quota(1, 0, 3)], 50).expect("it may join");
        }
        let whole = fs::read(&path).expect("it is there");
        for torn in [vec![7; 13], vec![0; RECORD_BYTES], vec![0; RECORD_BYTES + 1]] {
            fs::write(&path, [whole.clone(), torn].concat()).expect("it is written");
            joins.enter(&peers[0], &[quota(1, 0, 3)], 50).expect("it has joined");
            assert_eq!(fs::read(&path).expect("it is there"), whole);
        }
        let mut damaged = whole.clone();
        damaged[3] ^= 1;
        fs::write(&path, damaged).expect("it is written");
        let refused = joins.enter(&PeerId::random(), &[quota(1, 0, 9)], 50);
        assert!(matches!(refused, Err(JoinError::Disk(_))));
    }

    #[test]
    fn invites_that_have_ended_are_forgotten() {
        let folder = Folder::new();
        let joins = folder.joins();
        let ended = Record { serial: [1; 16], place: 0, expires_at: 100, peer: [0; 32] };
        joins.append(&[ended; CLEANED_FROM]).expect("they are written");
        let late = 101 + KEPT_SECONDS;
        joins
            .enter(&PeerId::random(), &[Quota { ends_at: late + 9, ..quota(2, 0, 1) }], late)
            .expect("it may join");
        assert_eq!(joins.read().expect("it is read").0.len(), 1);
    }
}
