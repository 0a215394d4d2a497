//! One task per node owns the swarm: it takes commands and yields events.

mod approach;
mod commands;
mod events;
mod reaching;
mod trimming;

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use libp2p::{
    PeerId, Swarm,
    core::transport::ListenerId,
    identity::Keypair,
    swarm::{self, ConnectionId, PeerAddresses},
};
use tokio::{
    sync::{Notify, mpsc},
    time::MissedTickBehavior,
};

use self::approach::Approach;
use crate::{
    behaviour::{Behaviour, Relaying},
    carried::SharedCarried,
    conduct::{Conduct, Offence},
    dht::Dht,
    envelope::Signer,
    event::Event,
    facts::Facts,
    failure::DialFailure,
    figures::Figures,
    gate::Gate,
    gossip::Validator,
    hello::Instance,
    node::Command,
    peers::Peers,
    queue::EventQueue,
    reach::Reach,
    revocation,
    settings::{Liveness, Protocol, Settings},
    transport,
};

/// The swarm's idle time-out is not used: a connection manager will decide.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const COMMANDS_AT_ONCE: usize = 256;
const SEARCHES_BEGIN_WITHIN: Duration = Duration::from_secs(2);
/// How often searches are looked at while there may be some.
const LOOK_AT_SEARCHES: Duration = Duration::from_millis(50);

pub fn swarm(
    key: &Keypair,
    gate: Option<Arc<Gate>>,
    swarm_name: String,
    protocols: &[Protocol],
    figures: &Figures,
    carried: SharedCarried,
    settings: &Settings,
) -> Result<Swarm<Behaviour>, String> {
    let (transport, client) =
        transport::build(key, gate.clone(), settings.connect_timeout, figures.meter.clone())
            .map_err(|error| error.to_string())?;
    let relaying = Relaying { client, carried };
    let behaviour = Behaviour::new(key, relaying, gate, swarm_name, protocols, figures, settings)?;
    let config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(NEVER)
        .with_max_negotiating_inbound_streams(256)
        .with_per_connection_event_buffer_size(64);
    Ok(Swarm::new(transport, behaviour, key.public().to_peer_id(), config))
}

/// What the driver shares with whoever holds the node.
#[derive(Clone, Default)]
pub struct Shared {
    pub figures: Arc<Figures>,
    pub facts: Arc<Facts>,
}

pub struct Driver {
    swarm: Swarm<Behaviour>,
    gate: Arc<Gate>,
    queue: Arc<EventQueue>,
    settings: Settings,
    figures: Arc<Figures>,
    facts: Arc<Facts>,
    peers: Peers,
    dht: Dht,
    /// Until then searches may run, of ours or of Kademlia's own.
    searching_until: Instant,
    validator: Validator,
    revocations_topic: String,
    /// Where peers can be dialled, as they or others say.
    addresses: PeerAddresses,
    listens: HashMap<ListenerId, u64>,
    /// Gateways through which this node listens, or wants to.
    reservations: HashMap<ListenerId, PeerId>,
    reach: Reach,
    dials: HashMap<ConnectionId, String>,
    /// Peers that are dialled at whatever addresses are known, or will be.
    approaches: HashMap<PeerId, Approach>,
    approaching: HashMap<ConnectionId, PeerId>,
    /// Peers that are never disconnected to save resources.
    kept: HashSet<PeerId>,
    /// What is relayed through this node.
    carried: SharedCarried,
    conduct: Arc<Conduct>,
    offences: mpsc::Receiver<Offence>,
    failed_pings: HashMap<ConnectionId, u32>,
    /// Why we close a connection, since the swarm gives no cause for what we do ourselves.
    own_causes: HashMap<ConnectionId, &'static str>,
    /// Which process of the peer is at the other end.
    instances: HashMap<ConnectionId, Instance>,
}

impl Driver {
    #[expect(clippy::too_many_arguments, reason = "the parts of a node, each named by its type")]
    pub fn new(
        swarm: Swarm<Behaviour>,
        gate: Arc<Gate>,
        signer: Arc<Signer>,
        queue: Arc<EventQueue>,
        shared: Shared,
        carried: SharedCarried,
        protocols: Vec<Protocol>,
        liveness: Liveness,
        settings: Settings,
    ) -> Driver {
        let Shared { figures, facts } = shared;
        let (conduct, offences) = Conduct::new(settings.patience, settings.max_known_peers);
        let known_peers = NonZeroUsize::new(settings.max_known_peers).unwrap_or(NonZeroUsize::MIN);
        Driver {
            swarm,
            gate,
            peers: Peers::new(
                queue.clone(),
                facts.clone(),
                figures.clone(),
                conduct.clone(),
                protocols,
                liveness,
                &settings,
            ),
            dht: Dht::new(signer.clone(), queue.clone(), figures.clone(), &settings),
            searching_until: Instant::now(),
            revocations_topic: revocation::topic(&signer.swarm),
            validator: Validator::new(signer, &settings),
            addresses: PeerAddresses::new(known_peers),
            queue,
            settings,
            figures,
            facts,
            listens: HashMap::new(),
            reservations: HashMap::new(),
            reach: Reach::default(),
            dials: HashMap::new(),
            approaches: HashMap::new(),
            approaching: HashMap::new(),
            kept: HashSet::new(),
            carried,
            conduct,
            offences,
            failed_pings: HashMap::new(),
            own_causes: HashMap::new(),
            instances: HashMap::new(),
        }
    }

    pub async fn run(mut self, mut inbox: mpsc::Receiver<Command>, stop: Arc<Notify>) {
        let mut batch = Vec::with_capacity(COMMANDS_AT_ONCE);
        let mut sweep = tokio::time::interval(self.settings.expiry_check);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tick = tokio::time::interval(self.settings.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK_AT_SEARCHES);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let searching = Instant::now() < self.searching_until;
            tokio::select! {
                _ = look.tick(), if searching => {
                    if self.dht.cut_short(&mut self.swarm.behaviour_mut().kademlia) {
                        self.searches();
                    }
                }
                count = inbox.recv_many(&mut batch, COMMANDS_AT_ONCE) => {
                    if count == 0 {
                        break; // every handle is gone
                    }
                    for command in batch.drain(..) {
                        self.command(command);
                    }
                }
                event = self.swarm.select_next_some() => self.swarm_event(event),
                () = self.peers.stream_ended() => {}
                _ = sweep.tick() => self.sweep(),
                _ = tick.tick() => self.tick(),
                peer = Driver::approach_due(&self.approaches) => self.proceed(peer),
                Some(offence) = self.offences.recv() => self.cut_off(offence),
                () = stop.notified() => break,
            }
        }
        inbox.close();
        while let Ok(command) = inbox.try_recv() {
            self.abandon(command);
        }
        self.wind_down().await;
    }

    /// Sends what is queued, then closes every connection; both within a time-out.
    async fn wind_down(&mut self) {
        self.peers.close_streams();
        let timeout = self.settings.stop_timeout;
        let flush = async {
            while self.peers.has_streams() || self.dht.is_publishing() {
                tokio::select! {
                    event = self.swarm.select_next_some() => self.swarm_event(event),
                    () = self.peers.stream_ended() => {}
                }
            }
            let connected: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
            for peer in connected {
                self.disconnect(peer, "this node stopped");
            }
            while self.swarm.connected_peers().next().is_some() {
                let event = self.swarm.select_next_some().await;
                self.swarm_event(event);
            }
        };
        let _ = tokio::time::timeout(timeout, flush).await;
        self.dht.abandon();
        self.peers.end_all("this node stopped");
        self.abandon_approaches();
        for (_, address) in self.dials.drain() {
            let error = "the node stopped".into();
            self.queue.push(Event::DialFailed { address, failure: DialFailure::Other, error });
        }
    }

    fn sweep(&mut self) {
        let connected: HashSet<PeerId> = self.swarm.connected_peers().copied().collect();
        for (peer, cause) in self.gate.sweep(|peer| connected.contains(peer)) {
            self.disconnect(peer, cause);
        }
    }

    /// A new process of a peer takes the place of the one before: what is left of that is
    /// dead and not known to be, or another machine with the same key.
    fn retire(&mut self, peer: PeerId, connection: ConnectionId, instance: Instance) {
        for older in self.peers.connections(&peer) {
            let same = self.instances.get(&older).is_none_or(|before| *before == instance);
            if !same && self.swarm.close_connection(older) {
                self.own_causes.insert(older, "a new process came with the peer's identity");
            }
        }
        self.instances.insert(connection, instance);
    }

    /// A search runs, or may begin soon: Kademlia waits a moment before it looks for ourselves.
    fn searches(&mut self) {
        self.searching_until = Instant::now() + SEARCHES_BEGIN_WITHIN;
    }

    fn tick(&mut self) {
        if self.dht.tick(&mut self.swarm.behaviour_mut().kademlia) {
            self.searches();
        }
        self.validator.forget();
        self.conduct.tick();
        self.swarm.behaviour_mut().bans.forget(Instant::now());
        self.trim();
    }
}
