//! The bounded queue between a node and the application.
//!
//! Outcomes (streams, dials, connections) are never dropped: their number is bounded by
//! what causes them, and stream readers stop while the queue is congested. Notices
//! (gossip, round trips, refusals) are dropped, the oldest first.

use std::{collections::VecDeque, sync::Mutex};

use tokio::sync::Notify;

use crate::{event::Event, lock};

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub congested_bytes: usize,
    pub congested_events: usize,
    pub max_notices: usize,
    pub max_notice_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            congested_bytes: 128 << 20,
            congested_events: 1 << 17,
            max_notices: 4096,
            max_notice_bytes: 16 << 20,
        }
    }
}

/// Wakes the application; called by network threads, must not block.
pub type Doorbell = Box<dyn Fn() + Send + Sync>;

pub struct EventQueue {
    bounds: Bounds,
    doorbell: Doorbell,
    waiting: Mutex<Waiting>,
    drained: Notify,
}

#[derive(Default)]
struct Waiting {
    outcomes: Vec<Event>,
    outcome_bytes: usize,
    notices: VecDeque<Event>,
    notice_bytes: usize,
    dropped_notices: u64,
    /// The doorbell rang and nobody has come yet.
    rung: bool,
}

impl EventQueue {
    pub fn new(bounds: Bounds, doorbell: Doorbell) -> EventQueue {
        EventQueue { bounds, doorbell, waiting: Mutex::default(), drained: Notify::new() }
    }

    pub fn push(&self, event: Event) {
        let mut waiting = lock(&self.waiting);
        let bytes = event.bytes();
        if event.is_notice() {
            waiting.notices.push_back(event);
            waiting.notice_bytes += bytes;
            while waiting.notices.len() > self.bounds.max_notices
                || waiting.notice_bytes > self.bounds.max_notice_bytes
            {
                let Some(oldest) = waiting.notices.pop_front() else { break };
                waiting.notice_bytes -= oldest.bytes();
                waiting.dropped_notices += 1;
            }
        } else {
            waiting.outcomes.push(event);
            waiting.outcome_bytes += bytes;
        }
        let ring = !std::mem::replace(&mut waiting.rung, true);
        drop(waiting);
        if ring {
            (self.doorbell)();
        }
    }

    /// Takes everything that waits.
    pub fn drain(&self) -> (Vec<Event>, VecDeque<Event>) {
        let mut waiting = lock(&self.waiting);
        waiting.rung = false;
        waiting.outcome_bytes = 0;
        waiting.notice_bytes = 0;
        let taken = (std::mem::take(&mut waiting.outcomes), std::mem::take(&mut waiting.notices));
        drop(waiting);
        self.drained.notify_waiters();
        taken
    }

    /// How many notices were dropped since the start.
    pub fn dropped_notices(&self) -> u64 {
        lock(&self.waiting).dropped_notices
    }

    pub fn is_congested(&self) -> bool {
        let waiting = lock(&self.waiting);
        waiting.outcome_bytes >= self.bounds.congested_bytes
            || waiting.outcomes.len() >= self.bounds.congested_events
    }

    /// Waits until the queue is not congested.
    pub async fn room(&self) {
        loop {
            // Registered before the look, or a drain between the two would be missed.
            let drained = self.drained.notified();
            if !self.is_congested() {
                return;
            }
            drained.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use super::*;

    fn gossip(data: u8) -> Event {
        Event::Gossip { topic: "t".into(), source: libp2p::PeerId::random(), data: vec![data] }
    }

    #[test]
    fn the_bell_rings_once_until_somebody_comes() {
        let rings = Arc::new(AtomicUsize::new(0));
        let counter = rings.clone();
        let doorbell = Box::new(move || {
            counter.fetch_add(1, SeqCst);
        });
        let queue = EventQueue::new(Bounds::default(), doorbell);
        queue.push(gossip(1));
        queue.push(gossip(2));
        assert_eq!(rings.load(SeqCst), 1);
        assert_eq!(queue.drain().1.len(), 2);
        queue.push(gossip(3));
        assert_eq!(rings.load(SeqCst), 2);
    }

    #[test]
    fn notices_are_dropped_oldest_first_and_outcomes_never() {
        let bounds = Bounds { max_notices: 3, congested_events: 2, ..Bounds::default() };
        let queue = EventQueue::new(bounds, Box::new(|| {}));
        for number in 0..10 {
            queue.push(gossip(number));
            queue.push(Event::Stopped { error: String::new() });
        }
        assert!(queue.is_congested());
        assert_eq!(queue.dropped_notices(), 7);
        let (outcomes, notices) = queue.drain();
        assert_eq!(outcomes.len(), 10);
        let first = notices.front();
        assert!(matches!(first, Some(Event::Gossip { data, .. }) if data == &[7]));
        assert!(!queue.is_congested());
    }
}
