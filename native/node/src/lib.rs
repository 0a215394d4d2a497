//! A libp2p node behind a membership gate, free of Python.
//!
//! ```text
//!   commands ──▶ driver ──▶ swarm: gate · Kademlia · gossip · relay · streams · …
//!                  │                                              │
//!   events  ◀── event queue ◀───────────── one task per stream ◀────┘
//! ```
//!
//! [`node::Node`] is the way in, [`queue::EventQueue`] the way out. Every queue between
//! them is bounded, and nothing that a peer sends can end the process.

mod bans;
mod behaviour;
mod carried;
pub mod clock;
pub mod conduct;
pub mod dht;
mod driver;
pub mod envelope;
pub mod event;
pub mod facts;
pub mod failure;
pub mod figures;
pub mod gate;
mod gossip;
pub mod hello;
pub mod identity;
pub mod invite;
pub mod joins;
pub mod membership;
pub mod node;
mod peers;
mod pending;
pub mod queue;
mod reach;
mod reachability;
pub mod revocation;
pub mod rights;
pub mod settings;
pub mod streams;
mod tally;
pub mod transport;

pub use libp2p;

/// Checkouts share one target folder, and cargo tells their sources apart by time alone:
/// naming this variable makes it compile them anew when the checkout changes.
const _: Option<&str> = option_env!("MYCEL_CHECKOUT");

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere while the lock was held must not spread: each of our critical
/// sections leaves its data consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
