//! How gossipsub rates its peers: by invalid messages and broken rules, not by how busy a
//! topic is, since most of ours are quiet for minutes.

use std::time::Duration;

use libp2p::gossipsub::{PeerScoreParams, PeerScoreThresholds, TopicScoreParams};

/// Invalid messages weigh their number squared: four of them, and nobody gossips with the
/// peer; nine, and it is not heard at all.
const INVALID_WEIGHT: f64 = -5.0;
const GOSSIP_THRESHOLD: f64 = -50.0;
const PUBLISH_THRESHOLD: f64 = -100.0;
const GRAYLIST_THRESHOLD: f64 = -400.0;

pub fn peer() -> PeerScoreParams {
    PeerScoreParams {
        // Whole clusters, and all tests, share one address.
        ip_colocation_factor_weight: 0.0,
        behaviour_penalty_weight: -1.0,
        behaviour_penalty_threshold: 6.0,
        behaviour_penalty_decay: 0.9,
        decay_interval: Duration::from_secs(1),
        ..PeerScoreParams::default()
    }
}

pub fn thresholds() -> PeerScoreThresholds {
    PeerScoreThresholds {
        gossip_threshold: GOSSIP_THRESHOLD,
        publish_threshold: PUBLISH_THRESHOLD,
        graylist_threshold: GRAYLIST_THRESHOLD,
        ..PeerScoreThresholds::default()
    }
}

pub fn topic() -> TopicScoreParams {
    TopicScoreParams {
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: INVALID_WEIGHT,
        invalid_message_deliveries_decay: 0.9,
        ..TopicScoreParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gossipsub_takes_these_numbers() {
        let mut params = peer();
        params.topics.insert(libp2p::gossipsub::IdentTopic::new("t").hash(), topic());
        assert_eq!(params.validate(), Ok(()));
        assert_eq!(thresholds().validate(), Ok(()));
    }
}
