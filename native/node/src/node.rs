//! The way into a node for other threads.

use std::{panic::AssertUnwindSafe, path::PathBuf, sync::Arc};

use futures::FutureExt;
use libp2p::{
    Multiaddr, PeerId, StreamProtocol,
    identity::{Keypair, PublicKey},
};
use tokio::sync::mpsc;

use crate::{
    carried::SharedCarried,
    driver::{self, Driver, Shared},
    envelope::Signer,
    event::Event,
    gate::{Entrance, Gate, Porter},
    joins::Joins,
    queue::EventQueue,
    settings::{Liveness, Protocol, Settings},
    tally::half_of,
};

pub enum Command {
    /// Ends in one `Listening` or `ListenFailed` with this number.
    Listen {
        listen: u64,
        address: Multiaddr,
    },
    /// Ends in one `DialSucceeded` or `DialFailed`. `text` is the address as the caller
    /// wrote it.
    Dial {
        address: Multiaddr,
        text: String,
    },
    Disconnect {
        peer: PeerId,
    },
    /// The peer has sent a frame that is no message: a strike, as for a malformed frame.
    Accuse {
        peer: PeerId,
    },
    /// Ends in one `StreamOpened` or `StreamFailed`.
    OpenStream {
        peer: PeerId,
        protocol: StreamProtocol,
    },
    Subscribe {
        topic: String,
    },
    /// Signed with this node's identity before it goes out.
    Publish {
        topic: String,
        data: Vec<u8>,
    },
    /// Ends in one `DialSucceeded` or `DialFailed` with the address `/p2p/<peer>`.
    DialPeer {
        peer: PeerId,
        /// Where it may be, beside what is known already.
        addresses: Vec<Multiaddr>,
    },
    /// Listens through a gateway; told by `Reservation`. The address ends in its peer id.
    Reserve {
        gateway: PeerId,
        address: Multiaddr,
    },
    /// A kept peer is never disconnected to save resources.
    Keep {
        peer: PeerId,
        kept: bool,
    },
    Provide {
        key: Vec<u8>,
    },
    StopProviding {
        key: Vec<u8>,
    },
    /// Ends in one `ProvidersFound` that is finished.
    FindProviders {
        query: u64,
        key: Vec<u8>,
    },
    PutRecord {
        payload: Vec<u8>,
        sequence: u64,
        expires_at_ms: u64,
    },
    WithdrawRecord,
    /// Ends in one `RecordFound`.
    GetRecord {
        query: u64,
        peer: PeerId,
    },
    /// Holds live connections against expiries and revocations now.
    Sweep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the node has stopped")]
    Stopped,
    #[error("the node has too many commands to do")]
    Overloaded,
}

/// What a node is started with.
pub struct Start {
    pub key: Keypair,
    /// What is signed in one swarm is worth nothing in another.
    pub swarm_name: String,
    /// Whose signature makes a token good.
    pub owner: PublicKey,
    pub token: Vec<u8>,
    pub protocols: Vec<Protocol>,
    pub liveness: Liveness,
    pub settings: Settings,
}

/// Admits by the node's own key, which is what its peer id says of it.
fn porter(key: &Keypair, joins: PathBuf) -> Result<Porter, String> {
    let key = key.clone().try_into_ed25519().map_err(|error| error.to_string())?;
    Ok(Porter {
        secret: key.secret().as_ref().to_vec(),
        public: key.public().to_bytes(),
        joins: Arc::new(Joins::new(joins)),
    })
}

#[derive(Clone)]
pub struct Node {
    pub peer: PeerId,
    pub shared: Shared,
    pub gate: Arc<Gate>,
    commands: mpsc::Sender<Command>,
    stop: Arc<tokio::sync::Notify>,
}

impl Node {
    /// Starts a node; must be called inside a tokio runtime. Its last event is `Stopped`.
    pub fn start(start: Start, queue: Arc<EventQueue>) -> Result<Node, String> {
        let settings = &start.settings;
        let porter = settings.joins.clone().map(|path| porter(&start.key, path)).transpose()?;
        let gate = Arc::new(Gate::new(Entrance {
            owner: start.owner,
            swarm: start.swarm_name.clone(),
            peer: start.key.public().to_peer_id(),
            token: start.token,
            porter,
            timeout: settings.hello_timeout,
            tolerance: settings.clock_tolerance,
            max_clock_skew: settings.max_clock_skew,
            max_members: settings.max_members,
            max_per_family: half_of(settings.max_members.min(settings.max_connections as usize)),
            max_revocations: settings.max_revocations,
        })?);
        let shared = Shared::default();
        let signer = Signer::new(start.key.clone(), start.swarm_name.clone())
            .map_err(|error| error.to_string())?;
        let carried = SharedCarried::default();
        let swarm = driver::swarm(
            &start.key,
            Some(gate.clone()),
            start.swarm_name,
            &start.protocols,
            &shared.figures,
            carried.clone(),
            settings,
        )?;
        let (commands, inbox) = mpsc::channel(settings.max_commands);
        let stop = Arc::new(tokio::sync::Notify::new());
        let driver = Driver::new(
            swarm,
            gate.clone(),
            Arc::new(signer),
            queue.clone(),
            shared.clone(),
            carried,
            start.protocols,
            start.liveness,
            start.settings,
        );
        let work = driver.run(inbox, stop.clone());
        tokio::spawn(async move {
            // A fault of ours ends this node with a word, and nothing else.
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let error = result.err().map_or("", |_| "the node's driver panicked");
            queue.push(Event::Stopped { error: error.into() });
        });
        Ok(Node { peer: start.key.public().to_peer_id(), shared, gate, commands, stop })
    }

    pub fn send(&self, command: Command) -> Result<(), SendError> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => SendError::Stopped,
        })
    }

    /// Takes in what the owner revoked and cuts off whom it concerns; gives back which of the
    /// records were good and news.
    pub fn revoke(&self, records: &[Vec<u8>]) -> Result<Vec<bool>, SendError> {
        let news = self.gate.revoke(records);
        self.send(Command::Sweep)?;
        Ok(news)
    }

    /// Sends what streams have queued, closes all connections, frees the ports; then
    /// comes `Stopped`. Idempotent.
    pub fn stop(&self) {
        self.stop.notify_one();
    }
}
