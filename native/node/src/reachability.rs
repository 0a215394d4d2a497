//! AutoNAT as its client, with gateways alone.
//!
//! libp2p's handler of dial-backs reads on after the end of a stream, without ever pausing,
//! for five seconds: whoever opens such a stream and closes it stops the connection's thread
//! that long. Only gateways dial back; nobody else gets that far.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    autonat::v2::client,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, behaviour::toggle::Toggle,
    },
};

use crate::{gate::Gate, rights};

pub struct Behaviour {
    client: Toggle<client::Behaviour>,
    /// What others than gateways get: it speaks no protocol.
    nothing: Toggle<client::Behaviour>,
    /// Who knows the roles; without, everybody passes for a gateway.
    gate: Option<Arc<Gate>>,
}

impl Behaviour {
    pub fn new(gate: Option<Arc<Gate>>) -> Behaviour {
        let client = Some(client::Behaviour::default()).into();
        Behaviour { client, nothing: None.into(), gate }
    }

    fn for_peer(&mut self, peer: &PeerId) -> &mut Toggle<client::Behaviour> {
        let is_gateway = self.gate.as_ref().is_none_or(|gate| {
            let admission = gate.admission_of(peer);
            admission.is_some_and(|it| it.token.rights.roles & rights::mask_of(["gateway"]) != 0)
        });
        if is_gateway { &mut self.client } else { &mut self.nothing }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = THandler<Toggle<client::Behaviour>>;
    type ToSwarm = client::Event;

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let chosen = self.for_peer(&peer);
        chosen.handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let chosen = self.for_peer(&peer);
        chosen.handle_established_outbound_connection(connection, peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        self.client.on_swarm_event(event);
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        self.client.on_connection_handler_event(peer, connection, event);
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.client.poll(context)
    }
}
