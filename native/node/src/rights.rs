//! What a token allows, and how blocks of it take away.
//!
//! The owner's block grants; whatever comes after it can only narrow. That holds by
//! construction: [`Rights::narrow`] intersects sets and takes the smaller number, and there
//! is no operation that adds.

use std::collections::{BTreeMap, BTreeSet};

use biscuit_auth::builder::Term;

/// A bit mask of roles: gateway 1, scheduler 2, worker 4, cluster 8.
pub const ROLES: [(&str, u32); 4] =
    [("gateway", 1), ("scheduler", 2), ("worker", 4), ("cluster", 8)];

/// Seconds of wall time since 1970; a token without an end has this one.
pub const NEVER: u64 = u64::MAX;

/// The prefix of the keys under which caps are kept: "cap.memory".
pub const CAP: &str = "cap.";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The swarm that the token is for.
    pub swarm: String,
    /// Absent: a member that speaks for nobody.
    pub user: Option<String>,
    pub roles: u32,
    pub actions: BTreeSet<String>,
    /// Absent: any.
    pub priority_max: Option<i64>,
    /// The most of each that one task may ask for, in thousandths; absent: any.
    pub caps: BTreeMap<String, i64>,
    pub cluster: Option<String>,
    pub expires_at: u64,
}

impl Rights {
    /// Machines' clocks differ: `tolerance_seconds` are granted beyond the expiry.
    pub fn has_expired(&self, wall_seconds: u64, tolerance_seconds: u64) -> bool {
        self.expires_at.saturating_add(tolerance_seconds) <= wall_seconds
    }

    /// Takes one restriction into account. An unknown one refuses the token: to pass over
    /// it would widen what somebody meant to narrow.
    pub fn narrow(&mut self, key: &str, value: &Term) -> Result<(), Unknown> {
        let unknown = || Unknown(key.chars().take(40).collect());
        match (key, value) {
            ("roles", Term::Set(set)) => {
                self.roles &= mask_of(strings(set).ok_or_else(unknown)?);
            }
            ("actions", Term::Set(set)) => {
                let kept: BTreeSet<&str> = strings(set).ok_or_else(unknown)?.collect();
                self.actions.retain(|action| kept.contains(action.as_str()));
            }
            ("priority_max", Term::Integer(most)) => {
                self.priority_max = Some(self.priority_max.map_or(*most, |now| now.min(*most)));
            }
            ("expires", Term::Date(when)) => self.expires_at = self.expires_at.min(*when),
            ("user", Term::Str(user)) => self.narrow_user(user),
            ("cluster", Term::Str(name)) => match &self.cluster {
                Some(cluster) if cluster != name => self.forbid(),
                _ => self.cluster = Some(name.clone()),
            },
            (_, Term::Integer(most)) if key.starts_with(CAP) => {
                let cap = self.caps.entry(key[CAP.len()..].to_owned()).or_insert(*most);
                *cap = (*cap).min(*most);
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// A user may name a part of itself, "alice/ci", and nobody else.
    fn narrow_user(&mut self, name: &str) {
        let may = match &self.user {
            None => false,
            Some(user) => {
                let rest = name.strip_prefix(user.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        };
        match may {
            true => self.user = Some(name.to_owned()),
            false => self.forbid(),
        }
    }

    /// Restrictions that contradict each other leave nothing.
    fn forbid(&mut self) {
        self.user = None;
        self.roles = 0;
        self.actions.clear();
        self.expires_at = 0;
    }

    /// What both allow; for a key that the owner delegated to, and what it gave on.
    pub fn meet(&mut self, other: &Rights) {
        self.roles &= other.roles;
        self.actions.retain(|action| other.actions.contains(action));
        self.priority_max = match (self.priority_max, other.priority_max) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        for (name, most) in &other.caps {
            let cap = self.caps.entry(name.clone()).or_insert(*most);
            *cap = (*cap).min(*most);
        }
        self.expires_at = self.expires_at.min(other.expires_at);
        match (&self.user, &other.user) {
            // A delegation without a user lets its key speak of any.
            (None, user) => self.user = user.clone(),
            (Some(_), Some(user)) => self.narrow_user(&user.clone()),
            (Some(_), None) => self.user = None,
        }
        match (&self.cluster, &other.cluster) {
            (Some(one), Some(two)) if one != two => self.forbid(),
            (None, cluster) => self.cluster = cluster.clone(),
            _ => {}
        }
    }
}

/// The key of a restriction that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

fn strings(set: &BTreeSet<Term>) -> Option<impl Iterator<Item = &str>> {
    set.iter().all(|term| matches!(term, Term::Str(_))).then(|| {
        set.iter().filter_map(|term| match term {
            Term::Str(text) => Some(text.as_str()),
            _ => None,
        })
    })
}

/// Roles that this version does not know are passed over, so that versions can mix.
pub fn mask_of<'a>(roles: impl IntoIterator<Item = &'a str>) -> u32 {
    let bit = |role| ROLES.iter().find(|(name, _)| *name == role).map_or(0, |(_, bit)| *bit);
    roles.into_iter().map(bit).fold(0, |mask, bit| mask | bit)
}

pub fn names_of(mask: u32) -> impl Iterator<Item = &'static str> {
    ROLES.iter().filter(move |(_, bit)| mask & bit != 0).map(|(name, _)| *name)
}
