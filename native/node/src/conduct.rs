//! Who behaves, and who has used up our patience.
//!
//! Each peer has a budget of messages that refills with time: gossip that it wrote, requests
//! to the DHT, streams that it opens, frames on protocols that are limited. Whoever spends
//! more floods. What no honest node ever sends (forged gossip, forged records, malformed
//! frames) is a strike, and strikes are forgotten one by one.
//!
//! Whoever joined by one invite shares a second account: of as many members' budgets as the
//! square root of how many may join. Many identities of one stranger gain little by it, and
//! many honest machines, which send far less than they may, do not feel it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use libp2p::PeerId;
use tokio::sync::mpsc;

use crate::{
    invite::{Family, Serial},
    lock,
};

pub const FLOOD: &str = "flood";
pub const FORGED_GOSSIP: &str = "forged_gossip";
pub const FORGED_RECORD: &str = "forged_record";
pub const MALFORMED_FRAME: &str = "malformed_frame";

/// Reports that wait for the driver. More are dropped: those who send them go on, and are
/// reported again.
const MAX_REPORTS: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub messages_per_second: u32,
    /// So many may come at once.
    pub burst: u32,
    /// So many strikes cut a peer off…
    pub max_strikes: u32,
    /// …and after this much time one of them is forgotten.
    pub strike_forgotten: Duration,
}

#[derive(Debug)]
struct Account {
    budget: f64,
    strikes: f64,
    at: Instant,
}

impl Patience {
    /// With all who joined by one invite.
    fn shared(&self, family: &Family) -> Patience {
        let times = |limit: u32| limit.saturating_mul(family.shares);
        Patience {
            messages_per_second: times(self.messages_per_second),
            burst: times(self.burst),
            max_strikes: times(self.max_strikes),
            strike_forgotten: self.strike_forgotten / family.shares,
        }
    }
}

/// What a peer has done, judged by one clock. `true` is the end of our patience.
impl Account {
    fn new(patience: &Patience, now: Instant) -> Account {
        Account { budget: f64::from(patience.burst), strikes: 0.0, at: now }
    }

    fn settle(&mut self, patience: &Patience, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        let earned = passed * f64::from(patience.messages_per_second);
        self.budget = (self.budget + earned).min(f64::from(patience.burst));
        let forgotten = passed / patience.strike_forgotten.as_secs_f64().max(1e-3);
        self.strikes = (self.strikes - forgotten).max(0.0);
    }

    fn spend(&mut self, patience: &Patience, messages: usize, now: Instant) -> bool {
        self.settle(patience, now);
        self.budget -= messages as f64;
        self.budget < 0.0
    }

    /// False beyond the budget, which stays as it is then.
    fn spend_within(&mut self, patience: &Patience, now: Instant) -> bool {
        let too_much = self.spend(patience, 1, now);
        self.budget = self.budget.max(0.0);
        !too_much
    }

    fn strike(&mut self, patience: &Patience, now: Instant) -> bool {
        self.settle(patience, now);
        self.strikes += 1.0;
        // Part of one has been forgotten since it came: it still counts.
        self.strikes.ceil() >= f64::from(patience.max_strikes)
    }

    /// One of those who share the account is out: the others are not judged by what it did last.
    fn relieve(&mut self, patience: &Patience) {
        self.budget = self.budget.max(0.0) + f64::from(patience.burst);
        self.strikes = (self.strikes - f64::from(patience.max_strikes)).max(0.0);
    }

    fn is_clean(&self, patience: &Patience) -> bool {
        self.strikes <= 0.0 && self.budget >= f64::from(patience.burst)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offence {
    pub peer: PeerId,
    pub reason: &'static str,
}

/// Shared by the driver and the streams' tasks.
pub struct Conduct {
    patience: Patience,
    max_accounts: usize,
    accounts: Mutex<HashMap<PeerId, Account>>,
    families: Mutex<Families>,
    /// What peers pass on of authors that are not connected here.
    passed_on: Mutex<HashMap<PeerId, Account>>,
    reports: mpsc::Sender<Offence>,
}

#[derive(Default)]
struct Families {
    /// Of the connected peers that joined by an invite.
    of: HashMap<PeerId, Family>,
    accounts: HashMap<Serial, (Family, Account)>,
    /// As `Conduct::passed_on`.
    passed_on: HashMap<Serial, (Family, Account)>,
}

impl Families {
    /// Of the family of a connected peer, with what they may do together.
    fn account<'a>(
        of: &HashMap<PeerId, Family>,
        accounts: &'a mut HashMap<Serial, (Family, Account)>,
        peer: &PeerId,
        each: &Patience,
        now: Instant,
    ) -> Option<(&'a mut Account, Patience)> {
        let family = *of.get(peer)?;
        let patience = each.shared(&family);
        let fresh = || (family, Account::new(&patience, now));
        let (_, account) = accounts.entry(family.serial).or_insert_with(fresh);
        Some((account, patience))
    }
}

impl Conduct {
    pub fn new(patience: Patience, max_accounts: usize) -> (Arc<Conduct>, mpsc::Receiver<Offence>) {
        let (reports, offences) = mpsc::channel(MAX_REPORTS);
        let conduct = Conduct {
            patience,
            max_accounts,
            accounts: Mutex::default(),
            families: Mutex::default(),
            passed_on: Mutex::default(),
            reports,
        };
        (Arc::new(conduct), offences)
    }

    /// The peer is connected, and shares limits with these.
    pub fn joined_by(&self, peer: PeerId, family: Family) {
        lock(&self.families).of.insert(peer, family);
    }

    pub fn disconnected(&self, peer: &PeerId) {
        lock(&self.families).of.remove(peer);
        lock(&self.passed_on).remove(peer);
    }

    /// Counts a message that a peer passes on, of an author that is not connected here: nobody
    /// knows whether there is such a node, and a peer could make up one for each message. False
    /// beyond a member's budget. An honest peer may have been sent them: it is not cut off.
    pub fn pass_on(&self, peer: PeerId) -> bool {
        let now = Instant::now();
        let mut passed_on = lock(&self.passed_on);
        let account = passed_on.entry(peer).or_insert_with(|| Account::new(&self.patience, now));
        let is_within = account.spend_within(&self.patience, now);
        let Families { of, passed_on, .. } = &mut *lock(&self.families);
        let shared = Families::account(of, passed_on, &peer, &self.patience, now);
        is_within & shared.is_none_or(|(account, patience)| account.spend_within(&patience, now))
    }

    /// Counts messages of the peer; false once it floods.
    pub fn spend(&self, peer: PeerId, messages: usize) -> bool {
        self.judge(peer, FLOOD, |account, patience, now| account.spend(patience, messages, now))
    }

    /// Counts something that no honest node does; false once it is too much.
    pub fn strike(&self, peer: PeerId, reason: &'static str) -> bool {
        self.judge(peer, reason, Account::strike)
    }

    fn judge(
        &self,
        peer: PeerId,
        reason: &'static str,
        judge: impl Fn(&mut Account, &Patience, Instant) -> bool,
    ) -> bool {
        let now = Instant::now();
        let enough = self.judge_alone(peer, &judge, now) | self.judge_family(peer, &judge, now);
        if enough {
            // It begins anew when it is let in again.
            lock(&self.accounts).remove(&peer);
            let _ = self.reports.try_send(Offence { peer, reason });
        }
        !enough
    }

    fn judge_alone(
        &self,
        peer: PeerId,
        judge: impl Fn(&mut Account, &Patience, Instant) -> bool,
        now: Instant,
    ) -> bool {
        let mut accounts = lock(&self.accounts);
        if accounts.len() >= self.max_accounts && !accounts.contains_key(&peer) {
            self.forget_clean(&mut accounts, now);
        }
        let account = accounts.entry(peer).or_insert_with(|| Account::new(&self.patience, now));
        judge(account, &self.patience, now)
    }

    /// Whoever exceeds it is most likely who sends most.
    fn judge_family(
        &self,
        peer: PeerId,
        judge: impl Fn(&mut Account, &Patience, Instant) -> bool,
        now: Instant,
    ) -> bool {
        let Families { of, accounts, .. } = &mut *lock(&self.families);
        let Some((account, patience)) = Families::account(of, accounts, &peer, &self.patience, now)
        else {
            return false;
        };
        let enough = judge(account, &patience, now);
        if enough {
            account.relieve(&self.patience);
        }
        enough
    }

    fn forget_clean(&self, accounts: &mut HashMap<PeerId, Account>, now: Instant) {
        accounts.retain(|_, account| {
            account.settle(&self.patience, now);
            !account.is_clean(&self.patience)
        });
    }

    pub fn tick(&self) {
        let now = Instant::now();
        self.forget_clean(&mut lock(&self.accounts), now);
        let Families { accounts, passed_on, .. } = &mut *lock(&self.families);
        for accounts in [accounts, passed_on] {
            accounts.retain(|_, (family, account)| {
                let patience = self.patience.shared(family);
                account.settle(&patience, now);
                !account.is_clean(&patience)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        messages_per_second: 10,
        burst: 100,
        max_strikes: 3,
        strike_forgotten: Duration::from_secs(10),
    };

    #[test]
    fn a_burst_passes_and_a_flood_does_not() {
        let start = Instant::now();
        let mut account = Account::new(&PATIENCE, start);
        assert!(!account.spend(&PATIENCE, 100, start));
        assert!(!account.spend(&PATIENCE, 10, start + Duration::from_secs(1)));
        assert!(account.spend(&PATIENCE, 11, start + Duration::from_secs(2)));
        let mut steady = Account::new(&PATIENCE, start);
        for second in 0..1000 {
            assert!(!steady.spend(&PATIENCE, 10, start + Duration::from_secs(second)));
        }
    }

    #[test]
    fn strikes_are_forgotten_with_time() {
        let start = Instant::now();
        let mut account = Account::new(&PATIENCE, start);
        assert!(!account.strike(&PATIENCE, start));
        assert!(!account.strike(&PATIENCE, start));
        assert!(!account.strike(&PATIENCE, start + Duration::from_secs(10)));
        assert!(!account.strike(&PATIENCE, start + Duration::from_secs(20)));
        assert!(account.strike(&PATIENCE, start + Duration::from_secs(20)));
    }

    /// Of an invite for twenty.
    fn family(serial: u8) -> Family {
        Family { serial: [serial; 16], shares: 5 }
    }

    #[test]
    fn many_identities_of_one_invite_share_a_budget() {
        let (conduct, mut offences) = Conduct::new(PATIENCE, 100);
        let peers: Vec<PeerId> = (0..20).map(|_| PeerId::random()).collect();
        peers.iter().for_each(|peer| conduct.joined_by(*peer, family(1)));
        let other = PeerId::random();
        conduct.joined_by(other, family(2));
        // Each stays within its own budget of 100; together they have five members'.
        let passed = peers.iter().take_while(|peer| conduct.spend(**peer, 90)).count();
        assert_eq!(passed, 5);
        assert_eq!(offences.try_recv(), Ok(Offence { peer: peers[5], reason: FLOOD }));
        assert!(conduct.spend(other, 90), "another invite has its own");
        assert!(conduct.spend(peers[6], 90), "one is out, and the rest have its part");
        for peer in &peers {
            conduct.disconnected(peer);
        }
        assert!(conduct.spend(peers[7], 90));
        conduct.tick();
        assert_eq!(lock(&conduct.families).of.len(), 1);
    }

    #[test]
    fn what_is_passed_on_for_strangers_is_bounded_and_nobody_is_cut_off_for_it() {
        let (conduct, mut offences) = Conduct::new(PATIENCE, 100);
        let peer = PeerId::random();
        let passed = (0..1000).filter(|_| conduct.pass_on(peer)).count();
        assert!((100..150).contains(&passed), "{passed}");
        assert!(conduct.spend(peer, 90), "its own messages are counted apart");
        assert!(offences.try_recv().is_err());
        conduct.disconnected(&peer);
        assert!(lock(&conduct.passed_on).is_empty());
    }

    #[test]
    fn what_an_invites_members_pass_on_for_strangers_has_one_budget() {
        let (conduct, mut offences) = Conduct::new(PATIENCE, 100);
        let peers: Vec<PeerId> = (0..20).map(|_| PeerId::random()).collect();
        peers.iter().for_each(|peer| conduct.joined_by(*peer, family(1)));
        let passed: usize =
            peers.iter().map(|peer| (0..90).filter(|_| conduct.pass_on(*peer)).count()).sum();
        assert!((500..600).contains(&passed), "of five members, not of twenty: {passed}");
        assert!(conduct.pass_on(PeerId::random()));
        assert!(offences.try_recv().is_err());
    }

    #[test]
    fn strikes_of_one_invite_add_up() {
        let (conduct, _offences) = Conduct::new(PATIENCE, 100);
        let peers: Vec<PeerId> = (0..20).map(|_| PeerId::random()).collect();
        peers.iter().for_each(|peer| conduct.joined_by(*peer, family(1)));
        let mut passed = 0;
        for peer in peers.iter().chain(&peers) {
            passed += usize::from(conduct.strike(*peer, FORGED_GOSSIP));
        }
        assert!((14..40).contains(&passed), "two strikes each would pass alone: {passed}");
    }

    #[test]
    fn each_is_judged_by_its_own_deeds_and_reported() {
        let (conduct, mut offences) = Conduct::new(PATIENCE, 2);
        let [good, bad] = [PeerId::random(), PeerId::random()];
        assert!(conduct.spend(good, 50));
        assert!(!conduct.spend(bad, 200));
        assert_eq!(offences.try_recv(), Ok(Offence { peer: bad, reason: FLOOD }));
        assert!(conduct.spend(good, 10));
        for left in [true, true, false] {
            assert_eq!(conduct.strike(bad, FORGED_GOSSIP), left);
        }
        assert_eq!(offences.try_recv(), Ok(Offence { peer: bad, reason: FORGED_GOSSIP }));
        assert!(offences.try_recv().is_err());
    }
}
