//! Gossip with a signature of our own, checked once, before a message is passed on.

mod score;
mod window;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use libp2p::{
    PeerId,
    gossipsub::{
        self, DataTransform, IdentTopic, MaxCountSubscriptionFilter, Message, MessageAuthenticity,
        MessageId, RawMessage, TopicHash, TopicSubscriptionFilter, ValidationMode,
    },
};

use crate::{
    clock,
    envelope::{Envelope, OVERHEAD_BYTES, Signer, Subject},
    settings::Settings,
};
use window::Windows;

pub type Behaviour = gossipsub::Behaviour<CountCopies, MaxCountSubscriptionFilter<ShortTopics>>;

/// Who sends whole messages to a node: so many are sought, and so many more are taken.
const MESH_PEERS: usize = 3;
const MESH_MORE: usize = 2;
/// Who is told of messages, beside those: so many, or this share of all if that is more.
const TOLD_PEERS: usize = 3;
const TOLD_SHARE: f64 = 0.02;
/// What could not be passed on for so long is not passed on any more.
const FORWARD_PATIENCE: Duration = Duration::from_secs(5);
/// What gossipsub itself puts around a message.
const FRAMING_BYTES: usize = 1024;
const TOPIC_MAX_BYTES: usize = 256;
const MAX_SOURCES: usize = 65_536;
/// A start within the same millisecond would repeat sequences; this many messages fit
/// between two of them, and a node cannot send more.
const SEQUENCES_PER_MILLISECOND: u64 = 1 << 20;

/// Counts every copy of every message that comes, most of which gossipsub then drops.
#[derive(Clone, Default)]
pub struct CountCopies(pub Arc<AtomicU64>);

impl DataTransform for CountCopies {
    fn inbound_transform(&self, raw: RawMessage) -> Result<Message, std::io::Error> {
        self.0.fetch_add(1, Relaxed);
        let RawMessage { source, data, sequence_number, topic, .. } = raw;
        Ok(Message { source, data, sequence_number, topic })
    }

    fn outbound_transform(&self, _: &TopicHash, data: Vec<u8>) -> Result<Vec<u8>, std::io::Error> {
        Ok(data)
    }
}

/// Each peer's topics are kept while it is connected: without this, megabytes of names for each.
pub struct ShortTopics;

impl TopicSubscriptionFilter for ShortTopics {
    fn can_subscribe(&mut self, topic: &TopicHash) -> bool {
        topic.as_str().len() <= TOPIC_MAX_BYTES
    }
}

/// Unsigned as far as gossipsub knows: it would check the signature of every copy of a
/// message before it drops duplicates, which doubles the CPU.
pub fn behaviour(s: &Settings, copies: CountCopies) -> Result<Behaviour, String> {
    let config = gossipsub::ConfigBuilder::default()
        .message_id_fn(content_id)
        .protocol_id_prefix("/mycel/gossip")
        .heartbeat_interval(s.gossip_heartbeat)
        .heartbeat_initial_delay(s.gossip_heartbeat / 2)
        // Fewer copies than by default: each wakes a connection at both ends, as the first does,
        // and what a thin mesh loses, the peers that are told of it bring back.
        .mesh_n(MESH_PEERS)
        .mesh_n_low(MESH_PEERS - 1)
        .mesh_n_high(MESH_PEERS + MESH_MORE)
        .mesh_outbound_min(1)
        .gossip_lazy(TOLD_PEERS)
        .gossip_factor(TOLD_SHARE)
        // A machine that is busy for a moment is late, and loses nothing.
        .forward_queue_duration(FORWARD_PATIENCE)
        .max_transmit_size(s.gossip_max_bytes + OVERHEAD_BYTES + FRAMING_BYTES)
        .duplicate_cache_time(lifetime(s.message_tolerance))
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .build()
        .map_err(|error| error.to_string())?;
    let topics = MaxCountSubscriptionFilter {
        filter: ShortTopics,
        max_subscribed_topics: s.max_topics_per_peer,
        max_subscriptions_per_request: s.max_topics_per_peer,
    };
    let mut gossip = gossipsub::Behaviour::new_with_subscription_filter_and_transform(
        MessageAuthenticity::Anonymous,
        config,
        topics,
        copies,
    )
    .map_err(str::to_owned)?;
    gossip.with_peer_score(score::peer(), score::thresholds())?;
    Ok(gossip)
}

pub fn subscribe(gossip: &mut Behaviour, topic: String) {
    let topic = IdentTopic::new(topic);
    // Fails only for a filter, and what this node asks for is not filtered.
    let _ = gossip.subscribe(&topic);
    let _ = gossip.set_topic_params(topic, score::topic());
}

/// For how long a message can be good: from as far ahead as a clock may be, to as far behind.
fn lifetime(tolerance: Duration) -> Duration {
    2 * tolerance + Duration::from_secs(1)
}

/// Without author and sequence number only the content can name a message; the hash is
/// cryptographic, so that no member can make two messages look like one.
fn content_id(message: &Message) -> MessageId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(message.topic.as_str().len() as u64).to_be_bytes());
    hasher.update(message.topic.as_str().as_bytes());
    hasher.update(&message.data);
    MessageId::new(&hasher.finalize().as_bytes()[..20])
}

/// Why a message goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No envelope, too long, or not signed by whom it names: no honest peer passes it on.
    Forged,
    /// Sent too long ago, or in the future: somebody's clock is off.
    Untimely,
    /// It came before.
    Repeated,
    /// Its author is banned, or sends too much.
    Unwanted,
}

pub struct Validator {
    signer: Arc<Signer>,
    next_sequence: u64,
    windows: Windows,
    tolerance_ms: u64,
    max_bytes: usize,
}

impl Validator {
    pub fn new(signer: Arc<Signer>, s: &Settings) -> Validator {
        Validator {
            signer,
            next_sequence: clock::wall_milliseconds().saturating_mul(SEQUENCES_PER_MILLISECOND),
            windows: Windows::new(MAX_SOURCES, lifetime(s.message_tolerance)),
            tolerance_ms: s.message_tolerance.as_millis() as u64,
            max_bytes: s.gossip_max_bytes,
        }
    }

    /// A message of this node, ready to be published.
    pub fn seal(&mut self, topic: &str, data: &[u8]) -> Vec<u8> {
        self.next_sequence += 1;
        let now = clock::wall_milliseconds();
        self.signer.seal(Subject::Gossip { topic }, self.next_sequence, now, data)
    }

    /// Author and content of a message that may be passed on. The cheap looks come first.
    pub fn check(&mut self, topic: &str, data: &[u8]) -> Result<(PeerId, Vec<u8>), Fault> {
        let envelope = Envelope::parse(data).ok_or(Fault::Forged)?;
        if envelope.payload.len() > self.max_bytes {
            return Err(Fault::Forged);
        }
        if clock::wall_milliseconds().abs_diff(envelope.time_ms) > self.tolerance_ms {
            return Err(Fault::Untimely);
        }
        let subject = Subject::Gossip { topic };
        let source = envelope.is_signed(&self.signer.swarm, subject).ok_or(Fault::Forged)?;
        match self.windows.is_new(source, envelope.sequence, Instant::now()) {
            true => Ok((source, envelope.payload.to_vec())),
            false => Err(Fault::Repeated),
        }
    }

    pub fn forget(&mut self) {
        self.windows.forget(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    fn signer() -> Arc<Signer> {
        Arc::new(Signer::new(Keypair::generate_ed25519(), "here".into()).expect("a key"))
    }

    #[test]
    fn a_message_passes_once_with_its_author() {
        let (author, settings) = (signer(), Settings::default());
        let mut far = Validator::new(signer(), &settings);
        let sealed = Validator::new(author.clone(), &settings).seal("news", b"x");
        assert_eq!(far.check("news", &sealed), Ok((author.peer(), b"x".to_vec())));
        assert_eq!(far.check("news", &sealed), Err(Fault::Repeated));
        assert_eq!(far.check("olds", &sealed), Err(Fault::Forged));
        assert_eq!(far.check("news", b"nonsense"), Err(Fault::Forged));
    }

    #[test]
    fn a_message_of_another_time_does_not_pass() {
        let author = signer();
        let mut far = Validator::new(signer(), &Settings::default());
        let now = clock::wall_milliseconds();
        for (number, shift_ms) in [-61_000, 61_000, i64::MIN].into_iter().enumerate() {
            let at = now.saturating_add_signed(shift_ms);
            let sealed = author.seal(Subject::Gossip { topic: "t" }, number as u64, at, b"");
            assert_eq!(far.check("t", &sealed), Err(Fault::Untimely), "{shift_ms}");
        }
        let sealed = author.seal(Subject::Gossip { topic: "t" }, 9, now - 50_000, b"");
        assert!(far.check("t", &sealed).is_ok());
    }

    #[test]
    fn a_message_over_the_limit_does_not_pass() {
        let settings = Settings { gossip_max_bytes: 10, ..Settings::default() };
        let mut near = Validator::new(signer(), &settings);
        let mut far = Validator::new(signer(), &settings);
        assert!(far.check("t", &near.seal("t", &[0; 10])).is_ok());
        assert_eq!(far.check("t", &near.seal("t", &[0; 11])), Err(Fault::Forged));
    }

    #[test]
    fn a_restarted_node_goes_on_above_its_old_sequences() {
        let before = clock::wall_milliseconds() * SEQUENCES_PER_MILLISECOND;
        let mut started = Validator::new(signer(), &Settings::default());
        let first = Envelope::parse(&started.seal("t", b"")).map(|e| e.sequence);
        assert!(first > Some(before));
    }
}
