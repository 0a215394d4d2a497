//! One task per node owns the swarm: it takes commands and yields events.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, TransportError,
    core::transport::ListenerId,
    gossipsub::{self, IdentTopic, MessageAcceptance},
    identify,
    identity::Keypair,
    kad, multiaddr, ping,
    swarm::{self, ConnectionId, DialError, SwarmEvent, dial_opts::DialOpts},
};
use tokio::sync::{Notify, mpsc};

use crate::{
    behaviour::{Behaviour, BehaviourEvent, KADEMLIA},
    event::Event,
    failure::{self, DialFailure, chain},
    gate::Gate,
    node::Command,
    peers::Peers,
    queue::EventQueue,
    settings::{Liveness, Protocol, Settings},
    streams::behaviour::StreamEvent,
    transport,
};

/// The swarm's idle time-out is not used: a connection manager will decide.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const COMMANDS_AT_ONCE: usize = 256;
/// A peer announces its own addresses; what is more than this is not worth a look.
const MAX_ADDRESSES_PER_PEER: usize = 16;
/// One ping may be lost in a burst of work; two in a row are not.
const MAX_FAILED_PINGS: u32 = 2;

pub fn swarm(
    key: &Keypair,
    gate: Option<Arc<Gate>>,
    protocols: &[Protocol],
    settings: &Settings,
) -> Result<Swarm<Behaviour>, String> {
    let transport =
        transport::build(key, gate, settings.connect_timeout).map_err(|error| error.to_string())?;
    let behaviour = Behaviour::new(key, protocols, settings)?;
    let config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(NEVER)
        .with_max_negotiating_inbound_streams(256)
        .with_per_connection_event_buffer_size(64);
    Ok(Swarm::new(transport, behaviour, key.public().to_peer_id(), config))
}

pub struct Driver {
    swarm: Swarm<Behaviour>,
    gate: Arc<Gate>,
    queue: Arc<EventQueue>,
    settings: Settings,
    peers: Peers,
    listens: HashMap<ListenerId, u64>,
    dials: HashMap<ConnectionId, String>,
    failed_pings: HashMap<ConnectionId, u32>,
    /// Why we close a connection, since the swarm gives no cause for what we do ourselves.
    own_causes: HashMap<ConnectionId, &'static str>,
}

impl Driver {
    pub fn new(
        swarm: Swarm<Behaviour>,
        gate: Arc<Gate>,
        queue: Arc<EventQueue>,
        protocols: Vec<Protocol>,
        liveness: Liveness,
        settings: Settings,
    ) -> Driver {
        let max_streams = settings.max_streams_per_peer;
        Driver {
            swarm,
            gate,
            peers: Peers::new(queue.clone(), protocols, liveness, max_streams),
            queue,
            settings,
            listens: HashMap::new(),
            dials: HashMap::new(),
            failed_pings: HashMap::new(),
            own_causes: HashMap::new(),
        }
    }

    pub async fn run(mut self, mut inbox: mpsc::Receiver<Command>, stop: Arc<Notify>) {
        let mut batch = Vec::with_capacity(COMMANDS_AT_ONCE);
        let mut sweep = tokio::time::interval(self.settings.expiry_check);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
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
            while self.peers.has_streams() {
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
        self.peers.end_all("this node stopped");
        for (_, address) in self.dials.drain() {
            let error = "the node stopped".into();
            self.queue.push(Event::DialFailed { address, failure: DialFailure::Other, error });
        }
    }

    /// A command that came while the node stopped still gets its answer.
    fn abandon(&self, command: Command) {
        let error = String::from("the node stopped");
        match command {
            Command::Listen { listen, .. } => {
                self.queue.push(Event::ListenFailed { listen, in_use: false, error });
            }
            Command::Dial { text: address, .. } => {
                self.queue.push(Event::DialFailed { address, failure: DialFailure::Other, error });
            }
            Command::OpenStream { peer, protocol } => {
                self.queue.push(Event::StreamFailed { peer, protocol, error });
            }
            Command::Disconnect { .. } | Command::Subscribe { .. } | Command::Publish { .. } => {}
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Listen { listen, address } => self.listen(listen, address),
            Command::Dial { address, text } => self.dial(address, text),
            Command::Disconnect { peer } => self.disconnect(peer, "this node disconnected"),
            Command::OpenStream { peer, protocol } => {
                self.swarm.behaviour_mut().streams.open(peer, protocol);
            }
            Command::Subscribe { topic } => {
                // Fails only for a filter, and there is none.
                let _ = self.swarm.behaviour_mut().gossip.subscribe(&IdentTopic::new(topic));
            }
            Command::Publish { topic, data } => {
                // Gossip promises nothing: nobody there, or said already, is no error.
                let _ = self.swarm.behaviour_mut().gossip.publish(IdentTopic::new(topic), data);
            }
        }
    }

    fn listen(&mut self, listen: u64, address: Multiaddr) {
        let result = match probe(&address) {
            Ok(()) => self.swarm.listen_on(address),
            Err(error) => Err(TransportError::Other(error)),
        };
        let error = match result {
            Ok(listener) => {
                self.listens.insert(listener, listen);
                return;
            }
            Err(TransportError::Other(error)) => error,
            Err(error @ TransportError::MultiaddrNotSupported(_)) => io::Error::other(error),
        };
        let in_use = failure::is_address_in_use(&error);
        self.queue.push(Event::ListenFailed { listen, in_use, error: chain(&error) });
    }

    fn dial(&mut self, address: Multiaddr, text: String) {
        if let Some(multiaddr::Protocol::P2p(peer)) = address.iter().last()
            && self.peers.is_connected(&peer)
        {
            return self.queue.push(Event::DialSucceeded { address: text, peer });
        }
        let dial = DialOpts::unknown_peer_id().address(address).allocate_new_port().build();
        let connection = dial.connection_id();
        match self.swarm.dial(dial) {
            Ok(()) => drop(self.dials.insert(connection, text)),
            Err(error) => self.dial_failed(text, &error),
        }
    }

    fn dial_failed(&self, address: String, error: &DialError) {
        let (failure, error) = failure::describe(error);
        self.queue.push(Event::DialFailed { address, failure, error });
    }

    fn disconnect(&mut self, peer: PeerId, cause: &'static str) {
        for connection in self.peers.connections(&peer) {
            if self.swarm.close_connection(connection) {
                self.own_causes.insert(connection, cause);
            }
        }
    }

    fn sweep(&mut self) {
        let connected: HashSet<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in self.gate.sweep(|peer| connected.contains(peer)) {
            self.disconnect(peer, "the peer's token has expired");
        }
    }

    fn swarm_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.behaviour_event(event),
            SwarmEvent::NewListenAddr { listener_id, address } => {
                let listen = self.listens.remove(&listener_id);
                self.queue.push(Event::Listening { listen, address: address.to_string() });
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.queue.push(Event::NotListening { address: address.to_string() });
            }
            SwarmEvent::ListenerClosed { listener_id, addresses, reason } => {
                if let Some(listen) = self.listens.remove(&listener_id) {
                    let error = reason.err().map_or("closed".into(), |error| chain(&error));
                    self.queue.push(Event::ListenFailed { listen, in_use: false, error });
                }
                for address in addresses {
                    self.queue.push(Event::NotListening { address: address.to_string() });
                }
            }
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let roles = self.gate.roles_of(&peer_id);
                let address = endpoint.get_remote_address().to_string();
                self.peers.connection_established(peer_id, connection_id, roles, address);
                if let Some(address) = self.dials.remove(&connection_id) {
                    self.queue.push(Event::DialSucceeded { address, peer: peer_id });
                }
            }
            SwarmEvent::ConnectionClosed {
                peer_id, connection_id, num_established, cause, ..
            } => {
                self.failed_pings.remove(&connection_id);
                let ours = self.own_causes.remove(&connection_id);
                let cause = match (ours, cause) {
                    (Some(ours), _) => ours.to_owned(),
                    (None, Some(error)) => chain(&error),
                    (None, None) => "closed".to_owned(),
                };
                self.peers.connection_closed(peer_id, connection_id, num_established, cause);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, error, .. } => {
                if let Some(address) = self.dials.remove(&connection_id) {
                    self.dial_failed(address, &error);
                }
            }
            SwarmEvent::IncomingConnectionError { send_back_addr, error, .. } => {
                let address = send_back_addr.to_string();
                self.queue.push(Event::Refused { address, error: chain(&error) });
            }
            _ => {}
        }
    }

    fn behaviour_event(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Streams(StreamEvent::Opened {
                peer,
                connection,
                protocol,
                stream,
                ours,
            }) => self.peers.stream_opened(peer, connection, protocol, stream, ours),
            BehaviourEvent::Streams(StreamEvent::Failed { peer, protocol, error }) => {
                self.queue.push(Event::StreamFailed { peer, protocol, error });
            }
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. })
                if info.protocols.contains(&KADEMLIA) =>
            {
                self.learn(peer_id, info.listen_addrs);
            }
            BehaviourEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                id,
                result: kad::QueryResult::Bootstrap(_),
                ..
            }) => {
                // After the look-up of ourselves each refreshed bucket would meet a dozen
                // more peers, in all most of the swarm: cut it short.
                if let Some(mut refresh) = self.swarm.behaviour_mut().kademlia.query_mut(&id) {
                    refresh.finish();
                }
            }
            BehaviourEvent::Ping(ping::Event { peer, connection, result }) => match result {
                Ok(round_trip) => {
                    self.failed_pings.remove(&connection);
                    let seconds = round_trip.as_secs_f64();
                    self.queue.push(Event::RoundTrip { peer, seconds });
                }
                Err(ping::Failure::Unsupported) => {}
                Err(_) => {
                    // Ping only reports; to cut the connection is our part.
                    let failed = self.failed_pings.entry(connection).or_default();
                    *failed += 1;
                    if *failed >= MAX_FAILED_PINGS && self.swarm.close_connection(connection) {
                        self.own_causes.insert(connection, "the peer answers no pings");
                    }
                }
            },
            BehaviourEvent::Gossip(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            }) => {
                let acceptance = match message.data.len() <= self.settings.gossip_max_bytes {
                    true => MessageAcceptance::Accept,
                    false => MessageAcceptance::Reject,
                };
                let accepted = matches!(acceptance, MessageAcceptance::Accept);
                self.swarm.behaviour_mut().gossip.report_message_validation_result(
                    &message_id,
                    &propagation_source,
                    acceptance,
                );
                if accepted {
                    let (topic, data) = (message.topic.into_string(), message.data);
                    self.queue.push(Event::Gossip { topic, data });
                }
            }
            _ => {}
        }
    }

    fn learn(&mut self, peer: PeerId, addresses: Vec<Multiaddr>) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        for address in addresses.into_iter().take(MAX_ADDRESSES_PER_PEER) {
            kademlia.add_address(&peer, address);
        }
    }
}

/// libp2p listens with SO_REUSEPORT: two nodes could share a port and each get half of
/// the connections. A bind without it tells whether somebody listens already.
fn probe(address: &Multiaddr) -> io::Result<()> {
    let mut parts = address.iter();
    let (ip, port): (std::net::IpAddr, u16) = match (parts.next(), parts.next()) {
        (Some(multiaddr::Protocol::Ip4(ip)), Some(multiaddr::Protocol::Tcp(port))) => {
            (ip.into(), port)
        }
        (Some(multiaddr::Protocol::Ip6(ip)), Some(multiaddr::Protocol::Tcp(port))) => {
            (ip.into(), port)
        }
        _ => return Ok(()),
    };
    match port {
        0 => Ok(()),
        _ => std::net::TcpListener::bind((ip, port)).map(drop),
    }
}
