//! What the swarm tells.

use libp2p::{
    Multiaddr, PeerId, autonat,
    core::Endpoint,
    gossipsub::{self, MessageAcceptance},
    identify, kad, mdns,
    multiaddr::Protocol,
    ping,
    swarm::{ConnectionId, DialError, NetworkBehaviour, SwarmEvent},
};

use super::Driver;
use crate::{
    behaviour::BehaviourEvent,
    clock, conduct, dht,
    event::Event,
    failure::{self, chain},
    gossip::Fault,
    peers::Path,
    reach,
    streams::behaviour::StreamEvent,
};

/// One ping may be lost in a burst of work; two in a row are not.
const MAX_FAILED_PINGS: u32 = 2;

impl Driver {
    pub(super) fn swarm_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.behaviour_event(event),
            SwarmEvent::NewListenAddr { listener_id, address } => {
                let listen = self.listens.remove(&listener_id);
                self.listening(&address);
                self.queue.push(Event::Listening { listen, address: address.to_string() });
                self.reservation_held(listener_id);
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => {
                self.queue.push(Event::NotListening { address: address.to_string() });
            }
            SwarmEvent::ListenerClosed { listener_id, addresses, reason } => {
                let error = reason.err().map_or("closed".into(), |error| chain(&error));
                self.reservation_ended(listener_id, &error);
                if let Some(listen) = self.listens.remove(&listener_id) {
                    self.queue.push(Event::ListenFailed { listen, in_use: false, error });
                }
                for address in addresses {
                    self.queue.push(Event::NotListening { address: address.to_string() });
                }
            }
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let path = Path::new(connection_id, &endpoint);
                if endpoint.is_dialer() && !path.relayed {
                    self.addresses.add(peer_id, endpoint.get_remote_address().clone());
                }
                let Some(admission) = self.gate.admission_of(&peer_id) else {
                    // Forgotten between the hello and here, which takes half a minute.
                    self.swarm.close_connection(connection_id);
                    return;
                };
                if let Some(token) = self.gate.take_admission() {
                    self.queue.push(Event::Admitted { token });
                }
                self.retire(peer_id, connection_id, admission.instance);
                if let Some(oldest) = self.peers.connection_established(peer_id, path, admission)
                    && self.swarm.close_connection(oldest)
                {
                    self.own_causes.insert(oldest, "the peer's invite has no more connections");
                }
                self.approach_succeeded(connection_id, peer_id);
                if let Some(address) = self.dials.remove(&connection_id) {
                    self.figures.count_by("dials", "succeeded");
                    self.queue.push(Event::DialSucceeded { address, peer: peer_id });
                }
            }
            SwarmEvent::ConnectionClosed {
                peer_id, connection_id, num_established, cause, ..
            } => {
                self.failed_pings.remove(&connection_id);
                self.instances.remove(&connection_id);
                let ours = self.own_causes.remove(&connection_id);
                let cause = match (ours, cause) {
                    (Some(ours), _) => ours.to_owned(),
                    (None, Some(error)) => chain(&error),
                    (None, None) => "closed".to_owned(),
                };
                self.peers.connection_closed(peer_id, connection_id, num_established, cause);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, error, peer_id } => {
                self.forget_addresses(peer_id, &error);
                self.approach_failed(connection_id, &error);
                if let Some(address) = self.dials.remove(&connection_id) {
                    self.dial_failed(address, &error);
                }
            }
            SwarmEvent::IncomingConnectionError { send_back_addr, error, .. } => {
                let address = send_back_addr.to_string();
                self.figures.count_by("refusals", failure::refusal_kind(&error));
                self.queue.push(Event::Refused { address, error: chain(&error) });
            }
            SwarmEvent::ExternalAddrConfirmed { address } => {
                self.reach.confirmed(&address);
                self.reach_changed();
                if !reach::is_circuit(&address) {
                    let address = without_peer(address);
                    self.queue.push(Event::Listening { listen: None, address });
                }
            }
            SwarmEvent::ExternalAddrExpired { address } => {
                self.reach.expired(&address);
                self.reach_changed();
                if !self.swarm.listeners().any(|own| *own == address) {
                    self.queue.push(Event::NotListening { address: without_peer(address) });
                }
            }
            SwarmEvent::NewExternalAddrOfPeer { peer_id, address } => {
                self.addresses.add(peer_id, address);
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
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.identified(peer_id, info);
            }
            BehaviourEvent::Kademlia(event) => self.kademlia_event(event),
            BehaviourEvent::Ping(event) => self.pinged(event),
            BehaviourEvent::Gossip(gossipsub::Event::Message {
                propagation_source,
                message_id,
                message,
            }) => self.gossip_message(propagation_source, &message_id, message),
            BehaviourEvent::Relay(event) => self.relay_event(event),
            BehaviourEvent::HolePunching(event) => {
                let outcome = if event.result.is_ok() { "succeeded" } else { "failed" };
                self.figures.count_by("hole_punches", outcome);
            }
            BehaviourEvent::Reachability(autonat::v2::client::Event { result: Err(_), .. }) => {
                self.reach.test_failed();
                self.reach_changed();
            }
            BehaviourEvent::Mdns(mdns::Event::Discovered(found)) => self.found_nearby(found),
            _ => {}
        }
    }

    fn pinged(&mut self, ping::Event { peer, connection, result }: ping::Event) {
        match result {
            Ok(round_trip) => {
                self.failed_pings.remove(&connection);
                let seconds = round_trip.as_secs_f64();
                self.facts.change(&peer, |facts| {
                    facts.rtt_seconds = Some(seconds);
                    facts.heard.now();
                });
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
        }
    }

    fn identified(&mut self, peer: PeerId, info: identify::Info) {
        const LONGEST_SOFTWARE: usize = 64;
        let software = info.agent_version.chars().take(LONGEST_SOFTWARE).collect();
        self.facts.change(&peer, |facts| facts.software = software);
        let mut addresses = info.listen_addrs;
        addresses.truncate(self.settings.max_addresses_per_peer);
        self.reach.observed(&info.observed_addr);
        self.reach_changed();
        let in_dht = info.protocols.contains(&dht::PROTOCOL);
        for address in &addresses {
            self.addresses.add(peer, address.clone());
            // Kademlia dials all that it knows at once: to race two transports for each
            // question would cost two handshakes.
            if in_dht && !addresses.iter().any(|tcp| reach::are_twins(tcp, address)) {
                self.swarm.behaviour_mut().kademlia.add_address(&peer, address.clone());
            }
        }
    }

    /// What cannot be dialled is not tried again before somebody names it anew.
    fn forget_addresses(&mut self, peer: Option<PeerId>, error: &DialError) {
        if let (Some(peer), DialError::Transport(tries)) = (peer, error) {
            for (address, _) in tries {
                self.addresses.remove(&peer, address);
            }
        }
    }

    fn gossip_message(
        &mut self,
        from: PeerId,
        id: &gossipsub::MessageId,
        message: gossipsub::Message,
    ) {
        let mut checked = self.validator.check(message.topic.as_str(), &message.data);
        if let Ok((author, _)) = &checked
            && (self.swarm.behaviour().bans.is_banned(author) || !self.conduct.spend(*author, 1))
        {
            checked = Err(Fault::Unwanted);
        }
        if let Ok((author, _)) = &checked
            && !self.peers.is_connected(author)
            && !self.conduct.pass_on(from)
        {
            checked = Err(Fault::Unwanted);
        }
        if let Ok((_, data)) = &checked
            && message.topic.as_str() == self.revocations_topic
            && let Err(fault) = self.gate.check_revocations(data)
        {
            checked = Err(fault);
        }
        let acceptance = match &checked {
            Ok(_) => MessageAcceptance::Accept,
            Err(Fault::Forged) => MessageAcceptance::Reject,
            Err(Fault::Untimely | Fault::Repeated | Fault::Unwanted) => MessageAcceptance::Ignore,
        };
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        gossip.report_message_validation_result(id, &from, acceptance);
        self.facts.heard(&from);
        match checked {
            Ok((source, data)) => {
                self.figures.count("gossip_received");
                let topic = message.topic.into_string();
                self.queue.push(Event::Gossip { topic, source, data });
            }
            Err(fault) => {
                self.figures.count("gossip_invalid");
                if fault == Fault::Forged {
                    self.conduct.strike(from, conduct::FORGED_GOSSIP);
                }
            }
        }
    }

    fn kademlia_event(&mut self, event: kad::Event) {
        match event {
            kad::Event::OutboundQueryProgressed { id, result, step, .. } => {
                self.query_progressed(id, result, step.last);
            }
            kad::Event::InboundRequest {
                request: kad::InboundRequest::PutRecord { source, record: Some(record), .. },
            } => {
                self.facts.heard(&source);
                if !self.conduct.spend(source, 1) {
                    return;
                }
                let store = self.swarm.behaviour_mut().kademlia.store_mut();
                if let Err(error) = store.accept(record, clock::wall_milliseconds()) {
                    self.figures.dht_refused(error);
                    if error.is_forgery() {
                        self.conduct.strike(source, conduct::FORGED_RECORD);
                    }
                }
            }
            kad::Event::InboundRequest {
                request: kad::InboundRequest::AddProvider { record: Some(record) },
            } => {
                if !self.conduct.spend(record.provider, 1) {
                    return;
                }
                let family = self.gate.family_of(&record.provider);
                let store = self.swarm.behaviour_mut().kademlia.store_mut();
                if let Err(error) = store.accept_provider(record, family) {
                    self.figures.dht_refused(error);
                }
            }
            kad::Event::RoutingUpdated { is_new_peer: true, .. } => {
                let buckets = self.swarm.behaviour_mut().kademlia.kbuckets();
                let known = buckets.map(|bucket| bucket.num_entries()).sum();
                self.figures.set("dht_routing_table", known);
                self.dht.table_changed(known);
                self.searches(); // one for ourselves follows the first peers
            }
            _ => {}
        }
    }

    fn query_progressed(&mut self, id: kad::QueryId, result: kad::QueryResult, last: bool) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        match &result {
            kad::QueryResult::Bootstrap(_) => {
                self.figures.dht_query("bootstrap");
                // After the look-up of ourselves each refreshed bucket would meet a dozen
                // more peers, in all most of the swarm: cut it short.
                if let Some(mut refresh) = kademlia.query_mut(&id) {
                    refresh.finish();
                }
            }
            kad::QueryResult::GetProviders(Ok(kad::GetProvidersOk::FoundProviders {
                providers,
                ..
            })) => {
                for peer in providers.clone() {
                    self.remember_found(peer);
                }
            }
            kad::QueryResult::GetClosestPeers(Ok(kad::GetClosestPeersOk { peers, .. })) => {
                for peer in peers {
                    for address in &peer.addrs {
                        self.addresses.add(peer.peer_id, address.clone());
                    }
                }
            }
            _ => {}
        }
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        if let Some(peer) = self.dht.progressed(kademlia, id, result, last) {
            self.located(peer);
        }
    }

    /// Kademlia knows a provider's addresses for as long as the search runs, and tells them
    /// only to whoever is about to dial.
    fn remember_found(&mut self, peer: PeerId) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        let nobody = ConnectionId::new_unchecked(usize::MAX);
        let known =
            kademlia.handle_pending_outbound_connection(nobody, Some(peer), &[], Endpoint::Dialer);
        let most = self.settings.max_addresses_per_peer;
        let known: Vec<Multiaddr> = known.into_iter().flatten().take(most).collect();
        for address in known {
            self.addresses.add(peer, address);
        }
    }
}

/// As the node's own addresses are told: where, not who.
fn without_peer(mut address: Multiaddr) -> String {
    if let Some(Protocol::P2p(_)) = address.iter().last() {
        address.pop();
    }
    address.to_string()
}
