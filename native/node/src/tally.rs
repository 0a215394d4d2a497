//! How many places of one kind the members of each invite hold together.
//!
//! A limit per peer is worth little against somebody with many identities. So each such limit has
//! a second one for all who joined by one invite: as many times a member's as [`Family::shares`].

use std::collections::{HashMap, hash_map};

use crate::invite::{Family, Serial};

/// The most that one invite's members may have of the places that a node has in all.
pub fn half_of(places: usize) -> usize {
    places.div_ceil(2)
}

#[derive(Debug, Default)]
pub struct Tally {
    held: HashMap<Serial, usize>,
}

impl Tally {
    /// Peers without a family are counted by nobody.
    pub fn held(&self, family: Option<Family>) -> usize {
        family.and_then(|family| self.held.get(&family.serial).copied()).unwrap_or(0)
    }

    /// Whether the peer's family holds fewer than it may, if a single member may hold `each`.
    pub fn has_room(&self, family: Option<Family>, each: usize) -> bool {
        family.is_none_or(|one| self.held(family) < each.saturating_mul(one.shares as usize))
    }

    pub fn take(&mut self, family: Option<Family>) {
        if let Some(family) = family {
            *self.held.entry(family.serial).or_default() += 1;
        }
    }

    pub fn give_back(&mut self, family: Option<Family>) {
        let Some(family) = family else { return };
        if let hash_map::Entry::Occupied(mut held) = self.held.entry(family.serial) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_shares_of_places_and_gives_them_back() {
        let family = |serial| Some(Family { serial: [serial; 16], shares: 3 });
        let mut tally = Tally::default();
        for _ in 0..6 {
            assert!(tally.has_room(family(1), 2));
            tally.take(family(1));
            tally.take(None);
        }
        assert!(!tally.has_room(family(1), 2));
        assert!(tally.has_room(family(2), 2) && tally.has_room(None, 2));
        tally.give_back(family(1));
        tally.give_back(family(2));
        assert!(tally.has_room(family(1), 2));
        (0..5).for_each(|_| tally.give_back(family(1)));
        assert!(tally.held.is_empty());
    }
}
