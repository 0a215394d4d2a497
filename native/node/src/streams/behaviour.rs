//! Opens and accepts streams, and says on which connection each of them runs.
//!
//! `libp2p-stream` was rejected: it keeps at most one unclaimed incoming stream per
//! protocol and drops the others, dials by itself, and hides the connection, so that a
//! reader whose connection we close would wait for ever.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, NotifyHandler, THandler,
        THandlerInEvent, THandlerOutEvent, ToSwarm,
    },
};

use super::handler::{Handler, OpenStream, Report};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

#[derive(Debug)]
pub enum StreamEvent {
    Opened {
        peer: PeerId,
        connection: ConnectionId,
        protocol: StreamProtocol,
        stream: Stream,
        ours: bool,
    },
    Failed {
        peer: PeerId,
        protocol: StreamProtocol,
        error: String,
    },
}

struct Request {
    peer: PeerId,
    connection: ConnectionId,
    protocol: StreamProtocol,
}

pub struct Behaviour {
    accepted: Arc<[StreamProtocol]>,
    open_timeout: Duration,
    next_request: u64,
    requests: HashMap<RequestId, Request>,
    /// In the order in which they came, each with whether it goes through a relay.
    connections: HashMap<PeerId, Vec<(ConnectionId, bool)>>,
    outbox: VecDeque<ToSwarm<StreamEvent, OpenStream>>,
}

impl Behaviour {
    pub fn new(accepted: Vec<StreamProtocol>, open_timeout: Duration) -> Self {
        Behaviour {
            accepted: accepted.into(),
            open_timeout,
            next_request: 0,
            requests: HashMap::new(),
            connections: HashMap::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Ends in exactly one `Opened` with `ours`, or one `Failed`.
    pub fn open(&mut self, peer: PeerId, protocol: StreamProtocol) {
        // A direct one, and the newest: an older one may be dead without our knowing.
        let known = self.connections.get(&peer).into_iter().flatten().rev();
        let Some(&(connection, _)) = known.min_by_key(|(_, relayed)| *relayed) else {
            let error = "the peer is not connected".into();
            let failed = StreamEvent::Failed { peer, protocol, error };
            self.outbox.push_back(ToSwarm::GenerateEvent(failed));
            return;
        };
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.requests.insert(request, Request { peer, connection, protocol: protocol.clone() });
        self.outbox.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(connection),
            event: OpenStream { request, protocol },
        });
    }

    fn connection_closed(&mut self, peer: PeerId, connection: ConnectionId) {
        if let Some(of_peer) = self.connections.get_mut(&peer) {
            of_peer.retain(|(other, _)| *other != connection);
            if of_peer.is_empty() {
                self.connections.remove(&peer);
            }
        }
        let lost = self.requests.extract_if(|_, request| request.connection == connection);
        for (_, Request { peer, protocol, .. }) in lost {
            let error = "the connection was lost".into();
            let failed = StreamEvent::Failed { peer, protocol, error };
            self.outbox.push_back(ToSwarm::GenerateEvent(failed));
        }
    }

    fn handler(&self) -> Handler {
        Handler::new(self.accepted.clone(), self.open_timeout)
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = StreamEvent;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        match event {
            FromSwarm::ConnectionEstablished(established) => {
                let of_peer = self.connections.entry(established.peer_id).or_default();
                of_peer.push((established.connection_id, established.endpoint.is_relayed()));
            }
            FromSwarm::ConnectionClosed(closed) => {
                self.connection_closed(closed.peer_id, closed.connection_id);
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        report: THandlerOutEvent<Self>,
    ) {
        let event = match report {
            Report::Opened { request, protocol, stream } => {
                let ours = request.is_some();
                if request.is_some_and(|request| self.requests.remove(&request).is_none()) {
                    return; // it has been reported as failed
                }
                StreamEvent::Opened { peer, connection, protocol, stream, ours }
            }
            Report::Failed { request, error } => {
                let Some(Request { protocol, .. }) = self.requests.remove(&request) else {
                    return;
                };
                StreamEvent::Failed { peer, protocol, error }
            }
        };
        self.outbox.push_back(ToSwarm::GenerateEvent(event));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<StreamEvent, THandlerInEvent<Self>>> {
        // `open` is called by the swarm's owner, who polls the swarm right afterwards.
        match self.outbox.pop_front() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }
}
