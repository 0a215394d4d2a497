//! One connection under an identity of its own: each link is a swarm by itself.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol, Swarm, SwarmBuilder,
    identity::Keypair,
    noise,
    swarm::{SwarmEvent, dial_opts::DialOpts},
    tcp, yamux,
};
use mycel_node::streams::behaviour::{Behaviour, StreamEvent};
use tokio::sync::{mpsc, oneshot};

const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
const NEVER: Duration = Duration::from_secs(3600);

type Opened = oneshot::Sender<Result<Stream, String>>;

/// Dropped with its last clone.
#[derive(Clone)]
pub struct Link {
    opens: mpsc::UnboundedSender<(StreamProtocol, Opened)>,
}

impl Link {
    pub async fn connect(
        mut seed: Vec<u8>,
        address: &str,
        accepted: Vec<StreamProtocol>,
    ) -> Result<Link, String> {
        let key = Keypair::ed25519_from_bytes(&mut seed).map_err(|error| error.to_string())?;
        let address: Multiaddr = address.parse().map_err(|_| "not an address")?;
        let mut swarm = SwarmBuilder::with_existing_identity(key)
            .with_tokio()
            .with_tcp(tcp::Config::new().nodelay(true), noise::Config::new, yamux::Config::default)
            .map_err(|error| error.to_string())?
            .with_behaviour(|_| Behaviour::new(accepted, OPEN_TIMEOUT))
            .map_err(|error| error.to_string())?
            .with_swarm_config(|config| config.with_idle_connection_timeout(NEVER))
            .build();
        let dial = DialOpts::unknown_peer_id().address(address).allocate_new_port().build();
        swarm.dial(dial).map_err(|error| error.to_string())?;
        let peer = loop {
            match swarm.select_next_some().await {
                SwarmEvent::ConnectionEstablished { peer_id, .. } => break peer_id,
                SwarmEvent::OutgoingConnectionError { error, .. } => return Err(error.to_string()),
                _ => {}
            }
        };
        let (opens, inbox) = mpsc::unbounded_channel();
        tokio::spawn(run(swarm, peer, inbox));
        Ok(Link { opens })
    }

    pub async fn open(&self, protocol: StreamProtocol) -> Result<Stream, String> {
        let (opened, answer) = oneshot::channel();
        self.opens.send((protocol, opened)).map_err(|_| "the link is gone")?;
        answer.await.map_err(|_| "the link is gone")?
    }
}

async fn run(
    mut swarm: Swarm<Behaviour>,
    peer: PeerId,
    mut inbox: mpsc::UnboundedReceiver<(StreamProtocol, Opened)>,
) {
    let mut waiting: HashMap<StreamProtocol, VecDeque<Opened>> = HashMap::new();
    // What the other end opens is held open and never read: silence, not refusal.
    let mut theirs: Vec<Stream> = Vec::new();
    loop {
        tokio::select! {
            asked = inbox.recv() => {
                let Some((protocol, opened)) = asked else { return };
                waiting.entry(protocol.clone()).or_default().push_back(opened);
                swarm.behaviour_mut().open(peer, protocol);
            }
            event = swarm.select_next_some() => {
                let (protocol, outcome) = match event {
                    SwarmEvent::Behaviour(StreamEvent::Opened { stream, ours: false, .. }) => {
                        theirs.push(stream);
                        continue;
                    }
                    SwarmEvent::Behaviour(StreamEvent::Opened { protocol, stream, .. }) => {
                        (protocol, Ok(stream))
                    }
                    SwarmEvent::Behaviour(StreamEvent::Failed { protocol, error, .. }) => {
                        (protocol, Err(error))
                    }
                    SwarmEvent::ConnectionClosed { .. } => return,
                    _ => continue,
                };
                if let Some(opened) = waiting.get_mut(&protocol).and_then(VecDeque::pop_front) {
                    let _ = opened.send(outcome);
                }
            }
        }
    }
}
