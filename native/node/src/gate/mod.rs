//! Admission inside the transport upgrade.
//!
//! [`Gate::admit`] is given to `Transport::and_then` on the outermost transport. It gets
//! a connection after encryption and multiplexing, and hands it on only when each end
//! has accepted the other's token on one substream. The swarm never hears of a
//! connection that fails here: no behaviour, no handler, no identify.

mod exchange;

use std::{
    collections::{HashMap, HashSet, VecDeque},
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
    gossip::Fault,
    hello::{Hello, Instance},
    invite::{self, Family, Invite},
    joins::{JoinError, Joins},
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
    pub peer: PeerId,
    /// What this node presents: bound to its own peer id. Of a newcomer, the invite's, until a
    /// gateway has admitted it.
    pub token: Vec<u8>,
    /// Of a gateway: admits whom an invite lets in that names its key.
    pub porter: Option<Porter>,
    pub timeout: Duration,
    /// Granted beyond a token's expiry.
    pub tolerance: Duration,
    /// A peer whose clock is farther off is refused: nothing that has a time would hold.
    pub max_clock_skew: Duration,
    pub max_members: usize,
    /// Of one invite.
    pub max_per_family: usize,
    pub max_revocations: usize,
}

/// What a gateway needs to make members by invites.
pub struct Porter {
    /// The gateway's own key, by which invites name it.
    pub secret: Vec<u8>,
    pub public: invite::Key,
    pub joins: Arc<Joins>,
}

/// Who presents a token: a member, or a newcomer by an invite that no gateway has vouched for yet.
enum Caller {
    Member(Admission),
    Newcomer(Admission, Vec<u8>),
}

pub struct Gate {
    entrance: Entrance,
    owner: [u8; 32],
    token: Mutex<Own>,
    /// Of this process: whoever has this identity and another instance is another process.
    instance: Instance,
    members: Mutex<HashMap<PeerId, Member>>,
    revocations: Mutex<Revocations>,
    /// Digests of records that were found to be the owner's.
    seen_revocations: Mutex<HashSet<[u8; 32]>>,
    /// Hellos that ended well, and how long they took in all.
    hellos: AtomicU64,
    hello_microseconds: AtomicU64,
}

/// What this node presents.
struct Own {
    token: Vec<u8>,
    /// It has yet to be admitted: its token is an invite's, with these revocation ids.
    newcomer: Option<Vec<Id>>,
    /// A gateway has admitted this node, and the application has not been told.
    is_news: bool,
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

impl Admission {
    /// With whom the peer shares limits.
    pub fn family(&self) -> Option<Family> {
        self.token.invite.as_ref().map(Invite::family)
    }
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
        let owner = owner.to_bytes();
        // A token that is not good at all is for the peers to refuse.
        let peer = entrance.peer.to_base58();
        let own = membership::inspect(&owner, &peer, clock::wall_seconds(), &entrance.token).ok();
        let newcomer = own.and_then(|own| match own.invite {
            Some(invite) if invite.admitted_by.is_none() => Some(own.revocation_ids),
            _ => None,
        });
        let own = Own { token: entrance.token.clone(), newcomer, is_news: false };
        Ok(Gate {
            owner,
            token: Mutex::new(own),
            instance,
            members: Mutex::default(),
            revocations: Mutex::new(Revocations::new(entrance.max_revocations)),
            seen_revocations: Mutex::default(),
            hellos: AtomicU64::default(),
            hello_microseconds: AtomicU64::default(),
            entrance,
        })
    }

    /// How many connections passed, and the microseconds that this has added to them.
    pub fn hellos(&self) -> (u64, u64) {
        (self.hellos.load(Relaxed), self.hello_microseconds.load(Relaxed))
    }

    /// The token that a gateway has made this node a member by; once.
    pub fn take_admission(&self) -> Option<Vec<u8>> {
        let mut own = lock(&self.token);
        std::mem::take(&mut own.is_news).then(|| own.token.clone())
    }

    /// With whom a connected peer shares limits: of one that joined by an invite.
    pub fn family_of(&self, peer: &PeerId) -> Option<Family> {
        let members = lock(&self.members);
        members.get(peer)?.admission.family()
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

    /// Whether revocations that came by gossip are passed on: only if the owner signed each of
    /// them, and none is of a token that has ended, of which nobody keeps any.
    pub(crate) fn check_revocations(&self, message: &[u8]) -> Result<(), Fault> {
        let records = revocation::unpack(message).ok_or(Fault::Forged)?;
        let over = clock::wall_seconds().saturating_sub(self.entrance.tolerance.as_secs());
        if records.iter().any(|record| revocation::ends_at(record).is_none_or(|at| at <= over)) {
            return Err(Fault::Untimely);
        }
        for record in records {
            // The same ones come again, and a signature takes longer than the rest of it.
            let digest = *blake3::hash(record).as_bytes();
            if lock(&self.seen_revocations).contains(&digest) {
                continue;
            }
            let Entrance { owner, swarm, max_revocations, .. } = &self.entrance;
            revocation::read(owner, swarm, record).ok_or(Fault::Forged)?;
            let mut seen = lock(&self.seen_revocations);
            if seen.len() >= *max_revocations {
                seen.clear();
            }
            seen.insert(digest);
        }
        Ok(())
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

    /// `granted` is the token of a newcomer that has become a member by this hello.
    fn own_hello(&self, granted: Option<Vec<u8>>) -> Vec<u8> {
        Hello {
            token: lock(&self.token).token.clone(),
            granted,
            wall_ms: Some(clock::wall_milliseconds()),
            revocations: Some(lock(&self.revocations).digest()),
            swarm: Some(self.entrance.swarm.clone()),
            instance: Some(self.instance),
        }
        .encode()
    }

    /// What the other end of a connection that this node dialled has to be: a member. If it says
    /// that this node is one from now on, this is taken over.
    fn judge_listener(&self, peer: PeerId, version: u8, block: &[u8]) -> Result<(), Refusal> {
        let (caller, granted) = self.judge(peer, version, block)?;
        match caller {
            Caller::Newcomer(..) => Err(TokenError::NotAdmitted.into()),
            Caller::Member(admission) => {
                self.enter(peer, admission)?;
                granted.map_or(Ok(()), |token| self.become_member(token))
            }
        }
    }

    /// Lets a member in, and a newcomer if this gateway may admit it: then with the token that it
    /// is a member by.
    async fn judge_dialer(
        &self,
        peer: PeerId,
        version: u8,
        block: &[u8],
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let (caller, _) = self.judge(peer, version, block)?;
        match caller {
            Caller::Member(admission) => self.enter(peer, admission).map(|()| None),
            Caller::Newcomer(admission, token) => {
                let granted = self.grant(peer, &admission.token, &token).await?;
                let token = self.verify(&peer, &granted)?;
                self.enter(peer, Admission { token, ..admission })?;
                Ok(Some(granted))
            }
        }
    }

    /// Makes a member of whoever holds an invite that names this gateway: counts, then signs.
    async fn grant(&self, peer: PeerId, found: &Token, token: &[u8]) -> Result<Vec<u8>, Refusal> {
        let (Some(porter), Some(invite)) = (&self.entrance.porter, &found.invite) else {
            return Err(TokenError::NotAdmitted.into());
        };
        let quotas = invite.quotas(&porter.public);
        if quotas.is_empty() {
            return Err(TokenError::NotAdmitted.into());
        }
        let now = clock::wall_seconds();
        // Signed first: what cannot be signed is not counted.
        let serial = invite.serial();
        let name = peer.to_base58();
        let granted = invite::admit(&porter.secret, &self.owner, token, &serial, &name, now)?;
        let joins = porter.joins.clone();
        let entered = tokio::task::spawn_blocking(move || joins.enter(&peer, &quotas, now)).await;
        match entered {
            Ok(Ok(())) => Ok(granted),
            Ok(Err(JoinError::UsedUp(joins))) => Err(TokenError::UsedUp(joins).into()),
            Ok(Err(error)) => Err(uncounted(&error.to_string())),
            Err(error) => Err(uncounted(&error.to_string())),
        }
    }

    /// Takes over what a gateway made of this node's own token, if it is that and nothing else.
    fn become_member(&self, token: Vec<u8>) -> Result<(), Refusal> {
        let mut own = lock(&self.token);
        let Some(ids) = &own.newcomer else { return Ok(()) };
        let found = self.verify(&self.entrance.peer, &token)?;
        if !found.revocation_ids.starts_with(ids) {
            return Err(refusal("malformed", "the gateway's answer is of another invite"));
        }
        *own = Own { token, newcomer: None, is_news: true };
        Ok(())
    }

    fn judge(
        &self,
        peer: PeerId,
        version: u8,
        block: &[u8],
    ) -> Result<(Caller, Option<Vec<u8>>), Refusal> {
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
        let (token, is_member) = self.inspect(&peer, &hello.token)?;
        let known = lock(&self.revocations);
        if known.revokes(&token.revocation_ids) {
            return Err(TokenError::Revoked.into());
        }
        let revocations_differ = hello.revocations.is_some_and(|theirs| theirs != known.digest());
        drop(known);
        let instance = hello.instance.unwrap_or_default();
        let admission = Admission { token, clock_skew_seconds, revocations_differ, instance };
        let caller = match is_member {
            true => Caller::Member(admission),
            false => Caller::Newcomer(admission, hello.token),
        };
        Ok((caller, hello.granted))
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

    /// A member's token.
    fn verify(&self, peer: &PeerId, token: &[u8]) -> Result<Token, TokenError> {
        match self.inspect(peer, token)? {
            (token, true) => Ok(token),
            (_, false) => Err(TokenError::NotAdmitted),
        }
    }

    /// What the token says, and whether it makes the peer a member. Else it is an invite's.
    fn inspect(&self, peer: &PeerId, token: &[u8]) -> Result<(Token, bool), TokenError> {
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
        if token.rights.roles == 0 {
            return Err(TokenError::NoRole);
        }
        let by_owner = token.member.as_deref() == Some(&*peer.to_base58());
        match &token.invite {
            Some(invite) => {
                let is_admitted = invite.admitted_by.is_some();
                Ok((token, is_admitted))
            }
            None if by_owner => Ok((token, true)),
            None => Err(TokenError::Unvouched),
        }
    }

    /// Whether the members of one invite have all the places that they may. There cannot be so
    /// many of them among fewer members, which spares counting.
    fn is_family_full(&self, members: &HashMap<PeerId, Member>, newcomer: &Admission) -> bool {
        let (most, family) = (self.entrance.max_per_family, newcomer.family());
        members.len() >= most
            && family.is_some()
            && members.values().filter(|one| one.admission.family() == family).count() >= most
    }

    fn enter(&self, peer: PeerId, admission: Admission) -> Result<(), Refusal> {
        let mut members = lock(&self.members);
        if members.len() >= self.entrance.max_members && !members.contains_key(&peer) {
            return Err(refusal("full", "too many members are connected here"));
        }
        if !members.contains_key(&peer) && self.is_family_full(&members, &admission) {
            return Err(refusal("full", "too many who joined by this invite are connected here"));
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

fn uncounted(error: &str) -> Refusal {
    let text = format!("this gateway cannot count who joins ({error}): tell whoever runs it");
    refusal("joins", text)
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
