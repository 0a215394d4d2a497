//! Admission inside the transport upgrade.
//!
//! [`Gate::admit`] is given to `Transport::and_then` on the outermost transport. It gets
//! a connection after encryption and multiplexing, and hands it on only when each end
//! has accepted the other's token on one substream. The swarm never hears of a
//! connection that fails here: no behaviour, no handler, no identify.

mod exchange;

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use libp2p::{
    PeerId,
    core::{ConnectedPoint, Endpoint, muxing::StreamMuxerBox, transport::PortUse},
    identity::{Keypair, PublicKey},
    multiaddr::Protocol,
};

pub use self::exchange::{HELLO_PROTOCOL, HELLO_VERSION, MAX_BLOCK_BYTES};
use crate::{
    clock,
    failure::{Refusal, refusal},
    hello::{Hello, Instance},
    lock,
    membership::{self, Token, TokenError},
    revocation::{self, Id, Revocations},
};

/// A member that has passed the gate is known for this long before its connection must
/// stand, else the sweep forgets it.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);

/// A peer's earlier processes that are remembered; see [`Member::retired`].
const RETIRED_MAX: usize = 4;

/// What a gate is made of.
pub struct Entrance {
    pub owner: PublicKey,
    pub swarm: String,
    /// What this node presents: bound to its own peer id.
    pub token: Vec<u8>,
    pub timeout: Duration,
    /// Granted beyond a token's expiry.
    pub tolerance: Duration,
    /// A peer whose clock is farther off is refused: nothing that has a time would hold.
    pub max_clock_skew: Duration,
    pub max_members: usize,
    pub max_revocations: usize,
}

pub struct Gate {
    entrance: Entrance,
    owner: [u8; 32],
    /// Of this process: whoever has this identity and another instance is another process.
    instance: Instance,
    members: Mutex<HashMap<PeerId, Member>>,
    revocations: Mutex<Revocations>,
    /// Hellos that ended well, and how long they took in all.
    hellos: AtomicU64,
    hello_microseconds: AtomicU64,
}

/// What the gate learnt of a peer when it let it in.
#[derive(Clone, Debug)]
pub struct Admission {
    pub token: Token,
    /// The peer's clock minus ours.
    pub clock_skew_seconds: f64,
    /// It knows of other revocations than we do.
    pub revocations_differ: bool,
    /// New with each start of the peer's process.
    pub instance: Instance,
}

struct Member {
    admission: Admission,
    admitted_at: Instant,
    /// Its processes before this one. A process never comes back under an earlier instance,
    /// so that one of these again is a second machine with the same key.
    retired: VecDeque<Instance>,
}

/// Who speaks first is the role, not who dialled: hole punching has two diallers. Not so over
/// QUIC, where nothing opens simultaneously: whoever dials from the port at which it listens is
/// the dialler of that connection, and the other end its listener.
fn speaks_as(point: &ConnectedPoint) -> Endpoint {
    match point {
        ConnectedPoint::Dialer { address, port_use: PortUse::Reuse, .. }
            if address.iter().any(|part| part == Protocol::QuicV1) =>
        {
            Endpoint::Dialer
        }
        ConnectedPoint::Dialer { role_override, .. } => *role_override,
        ConnectedPoint::Listener { .. } => Endpoint::Listener,
    }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Refusal {
        refusal(error.kind(), error.to_string())
    }
}

impl Gate {
    /// Fails if the owner's key is not of the kind that signs tokens.
    pub fn new(entrance: Entrance) -> Result<Gate, String> {
        let owner = entrance.owner.clone().try_into_ed25519().map_err(|error| error.to_string())?;
        let fresh = Keypair::generate_ed25519().public().encode_protobuf();
        let mut instance = Instance::default();
        instance.copy_from_slice(&blake3::hash(&fresh).as_bytes()[..16]);
        Ok(Gate {
            owner: owner.to_bytes(),
            instance,
            members: Mutex::default(),
            revocations: Mutex::new(Revocations::new(entrance.max_revocations)),
            hellos: AtomicU64::default(),
            hello_microseconds: AtomicU64::default(),
            entrance,
        })
    }

    /// How many connections passed, and the microseconds that this has added to them.
    pub fn hellos(&self) -> (u64, u64) {
        (self.hellos.load(Relaxed), self.hello_microseconds.load(Relaxed))
    }

    pub fn admission_of(&self, peer: &PeerId) -> Option<Admission> {
        lock(&self.members).get(peer).map(|member| member.admission.clone())
    }

    /// Takes in what the owner signed; gives back which records were good and news.
    pub fn revoke(&self, records: &[Vec<u8>]) -> Vec<bool> {
        let read =
            |record: &Vec<u8>| revocation::read(&self.entrance.owner, &self.entrance.swarm, record);
        // Signatures first: they take longer than anybody should wait for the lock.
        let found: Vec<Option<(Id, u64)>> = records.iter().map(read).collect();
        let mut revocations = lock(&self.revocations);
        let now = clock::wall_seconds();
        let tolerance = self.entrance.tolerance.as_secs();
        let mut take = |(id, ends): (Id, u64)| {
            ends.saturating_add(tolerance) > now && revocations.insert(id, ends)
        };
        found.into_iter().map(|record| record.is_some_and(&mut take)).collect()
    }

    /// The connected peers whose token is over, and why. Forgets who is not connected.
    pub fn sweep(&self, is_connected: impl Fn(&PeerId) -> bool) -> Vec<(PeerId, &'static str)> {
        let now = clock::wall_seconds();
        let tolerance = self.entrance.tolerance.as_secs();
        let mut revocations = lock(&self.revocations);
        revocations.prune(now, tolerance);
        let mut members = lock(&self.members);
        members.retain(|peer, member| {
            is_connected(peer) || member.admitted_at.elapsed() < CONNECTS_WITHIN
        });
        let ended = members.iter().filter_map(|(peer, member)| {
            let token = &member.admission.token;
            let cause = if revocations.revokes(&token.revocation_ids) {
                "the peer's token was revoked"
            } else if token.rights.has_expired(now, tolerance) {
                "the peer's token has expired"
            } else {
                return None;
            };
            is_connected(peer).then_some((*peer, cause))
        });
        ended.collect()
    }

    pub async fn admit(
        self: Arc<Self>,
        (peer, muxer): (PeerId, StreamMuxerBox),
        point: ConnectedPoint,
    ) -> io::Result<(PeerId, StreamMuxerBox)> {
        let role = speaks_as(&point);
        let began = Instant::now();
        let hello = async {
            match role {
                Endpoint::Dialer => self.hello_as_dialer(peer, muxer).await,
                Endpoint::Listener => self.hello_as_listener(peer, muxer).await,
            }
        };
        let muxer = tokio::time::timeout(self.entrance.timeout, hello)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the hello timed out"))??;
        self.hellos.fetch_add(1, Relaxed);
        self.hello_microseconds.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok((peer, muxer))
    }

    fn own_hello(&self) -> Vec<u8> {
        Hello {
            token: self.entrance.token.clone(),
            wall_ms: Some(clock::wall_milliseconds()),
            revocations: Some(lock(&self.revocations).digest()),
            swarm: Some(self.entrance.swarm.clone()),
            instance: Some(self.instance),
        }
        .encode()
    }

    fn judge(&self, peer: PeerId, version: u8, block: &[u8]) -> Result<(), Refusal> {
        if version != HELLO_VERSION {
            let text =
                format!("hello version {version} is not spoken here, {HELLO_VERSION} is: upgrade");
            return Err(refusal("version", text));
        }
        let Some(hello) = Hello::decode(block) else {
            return Err(refusal("malformed", "the hello is malformed"));
        };
        if let Some(name) = hello.swarm.filter(|name| *name != self.entrance.swarm) {
            let name: String = name.chars().take(64).collect();
            let text = format!("this is the swarm {:?}, not {name:?}", self.entrance.swarm);
            return Err(refusal("swarm", text));
        }
        // Before the token: with a wrong clock its expiry means nothing.
        let clock_skew_seconds = self.skew(hello.wall_ms)?;
        let token = self.verify(&peer, &hello.token)?;
        let known = lock(&self.revocations);
        if known.revokes(&token.revocation_ids) {
            return Err(TokenError::Revoked.into());
        }
        let revocations_differ = hello.revocations.is_some_and(|theirs| theirs != known.digest());
        drop(known);
        let instance = hello.instance.unwrap_or_default();
        self.enter(peer, Admission { token, clock_skew_seconds, revocations_differ, instance })
    }

    fn skew(&self, theirs: Option<u64>) -> Result<f64, Refusal> {
        let Some(theirs) = theirs else { return Ok(0.0) };
        let seconds = (theirs as f64 - clock::wall_milliseconds() as f64) / 1000.0;
        if seconds.abs() <= self.entrance.max_clock_skew.as_secs_f64() {
            return Ok(seconds);
        }
        let side = if seconds > 0.0 { "ahead of" } else { "behind" };
        let off = seconds.abs();
        let text = format!("your clock is {off:.0} s {side} this node's: set it right, by NTP");
        Err(refusal("clock", text))
    }

    fn verify(&self, peer: &PeerId, token: &[u8]) -> Result<Token, TokenError> {
        let now = clock::wall_seconds();
        let token = membership::inspect(&self.owner, &peer.to_base58(), now, token)?;
        if token.rights.swarm != self.entrance.swarm {
            return Err(TokenError::Swarm(token.rights.swarm));
        }
        if !token.is_bound {
            return Err(TokenError::Unbound);
        }
        if token.rights.has_expired(now, self.entrance.tolerance.as_secs()) {
            return Err(TokenError::Expired);
        }
        match token.rights.roles {
            0 => Err(TokenError::NoRole),
            _ => Ok(token),
        }
    }

    fn enter(&self, peer: PeerId, admission: Admission) -> Result<(), Refusal> {
        let mut members = lock(&self.members);
        if members.len() >= self.entrance.max_members && !members.contains_key(&peer) {
            return Err(refusal("full", "too many members are connected here"));
        }
        let mut retired = VecDeque::new();
        if let Some(before) = members.remove(&peer) {
            retired = before.retired;
            if before.admission.instance != admission.instance {
                if retired.contains(&admission.instance) {
                    members.insert(peer, Member { retired, ..before });
                    let text = "another node runs with this identity: two machines must not share \
                                an identity.key; move one of them away";
                    return Err(refusal("duplicate", text));
                }
                retired.push_back(before.admission.instance);
                if retired.len() > RETIRED_MAX {
                    retired.pop_front();
                }
            }
        }
        members.insert(peer, Member { admission, admitted_at: Instant::now(), retired });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_quic_whoever_dials_speaks_first_and_over_tcp_the_role_decides() {
        let dialled = |address: &str| ConnectedPoint::Dialer {
            address: address.parse().expect("an address"),
            role_override: Endpoint::Listener,
            port_use: PortUse::Reuse,
        };
        assert_eq!(speaks_as(&dialled("/ip4/10.0.0.1/udp/1/quic-v1")), Endpoint::Dialer);
        assert_eq!(speaks_as(&dialled("/ip4/10.0.0.1/tcp/1")), Endpoint::Listener);
    }
}
