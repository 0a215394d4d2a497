//! Invites: tokens that make members of machines whose peer ids nobody knows yet.
//!
//! ```text
//! owner's block     invite(serial) gateway(key, place) joins(place, n)
//! delegate's block  invite(serial) joins(place, n)                     if a delegate invites
//! gateway's block   admitted(serial, peer, time)     signed by one of the owner's gateway keys
//! ```
//!
//! An invite admits nobody by itself. Its holder binds it to a peer id and shows it to a gateway
//! that it names, which counts and appends the last block; [`crate::gate`] refuses it without.
//! A *place* is a home folder: gateways of one place keep one count, and places split what the
//! invite allows, since they cannot ask each other.

use std::collections::BTreeMap;

use biscuit_auth::{
    Authorizer, Biscuit, BlockBuilder, PublicKey,
    builder::{Fact, Term},
};

use crate::membership::{self, TokenError};

pub type Serial = [u8; 16];
pub type Key = [u8; 32];

const GATEWAYS_MAX: usize = 16;
/// How many may join in all, as far as one block can say.
pub const JOINS_MAX: u32 = 1_000_000;

/// What one block says of an invite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Random; names the invite, and all that was made from it.
    pub serial: Serial,
    /// Who may admit, each with its place. Only the owner's block is asked for them.
    pub gateways: Vec<(Key, u32)>,
    /// How many may join at each place.
    pub joins: BTreeMap<u32, u32>,
}

impl Terms {
    pub fn total(&self) -> u32 {
        self.joins.values().fold(0u32, |sum, joins| sum.saturating_add(*joins))
    }
}

/// What a token says of the invite that it stems from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    /// The owner's; for a delegate's invite, those of the delegation.
    pub root: Terms,
    /// A delegate's own, which hold beside the owner's.
    pub delegated: Option<Terms>,
    /// When what the owner, and the delegate, signed ends by itself. Whoever holds the token may
    /// have narrowed its own time since: what it was counted for holds until then all the same.
    pub root_ends_at: u64,
    pub delegated_ends_at: u64,
    /// The gateway that admitted the peer, if one has.
    pub admitted_by: Option<Key>,
}

/// How many may have joined by one serial at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub serial: Serial,
    pub place: u32,
    pub joins: u32,
    /// Until then it has to be remembered who has.
    pub ends_at: u64,
}

/// Whoever joined by one invite, or by all invites of one delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    pub serial: Serial,
    /// How many members' limits they have together.
    pub shares: u32,
}

impl Invite {
    /// Of the invite itself, not of the delegation behind it.
    pub fn serial(&self) -> Serial {
        self.delegated.as_ref().unwrap_or(&self.root).serial
    }

    /// How many may join, over all places.
    pub fn joins(&self) -> u32 {
        let all = [Some(&self.root), self.delegated.as_ref()];
        all.into_iter().flatten().map(Terms::total).min().unwrap_or(0)
    }

    /// What a gateway with this key counts; nothing if the invite does not name it.
    pub fn quotas(&self, key: &Key) -> Vec<Quota> {
        let named = self.root.gateways.iter().find(|(named, _)| named == key);
        let Some((_, place)) = named else { return Vec::new() };
        let quota = |terms: &Terms, serial: Serial, ends_at: u64| {
            let joins = terms.joins.get(place).copied().unwrap_or(0);
            Quota { serial, place: *place, joins, ends_at }
        };
        let mut quotas = vec![quota(&self.root, self.root.serial, self.root_ends_at)];
        if let Some(terms) = &self.delegated {
            // A delegate chooses its serials, and must not use up others' invites by theirs.
            let both = blake3::hash(&[self.root.serial, terms.serial].concat());
            let mut serial = Serial::default();
            serial.copy_from_slice(&both.as_bytes()[..16]);
            quotas.push(quota(terms, serial, self.delegated_ends_at));
        }
        quotas
    }

    /// Who shares limits: many identities of one stranger gain little by it, and many honest
    /// machines, which use far less than they may, do not feel it.
    pub fn family(&self) -> Family {
        let shares = f64::from(self.root.total().max(1)).sqrt().ceil() as u32;
        Family { serial: self.root.serial, shares }
    }
}

/// The facts of a block that says so.
pub(crate) fn facts(terms: &Terms) -> Result<Vec<Fact>, TokenError> {
    if terms.gateways.len() > GATEWAYS_MAX {
        let text = format!("an invite names at most {GATEWAYS_MAX} gateways");
        return Err(TokenError::Making(text));
    }
    if terms.total() > JOINS_MAX {
        return Err(TokenError::Making(format!("at most {JOINS_MAX} may join by one invite")));
    }
    let number = |value: u32| Term::Integer(i64::from(value));
    let fact = |name: &str, terms: Vec<Term>| Fact::new(name.into(), terms);
    let gateway = |(key, place): &(Key, u32)| {
        fact("gateway", vec![Term::Bytes(key.to_vec()), number(*place)])
    };
    let joins = |(place, joins): (&u32, &u32)| fact("joins", vec![number(*place), number(*joins)]);
    Ok([fact("invite", vec![Term::Bytes(terms.serial.to_vec())])]
        .into_iter()
        .chain(terms.gateways.iter().map(gateway))
        .chain(terms.joins.iter().map(joins))
        .collect())
}

/// What the owner's block says of an invite, or those that `key` signed.
pub(crate) fn terms(
    authorizer: &mut Authorizer,
    key: Option<PublicKey>,
) -> Result<Option<Terms>, TokenError> {
    let mut serials = membership::query(authorizer, "invite", 1, key)?.into_iter();
    let Some(found) = serials.next() else { return Ok(None) };
    if serials.next().is_some() {
        return Err(TokenError::Malformed); // two serials would be two counts
    }
    let mut terms = Terms { serial: bytes(&found[0])?, ..Terms::default() };
    for found in membership::query(authorizer, "gateway", 2, key)? {
        terms.gateways.push((bytes(&found[0])?, number(&found[1])?));
    }
    for found in membership::query(authorizer, "joins", 2, key)? {
        let (place, joins) = (number(&found[0])?, number(&found[1])?);
        let least = terms.joins.entry(place).or_insert(joins);
        *least = (*least).min(joins);
    }
    terms.gateways.sort_unstable();
    // One key at two places would have two counts.
    terms.gateways.dedup_by_key(|(key, _)| *key);
    Ok(Some(terms))
}

/// Which of the invite's gateways has admitted the peer; an empty name asks for anybody.
pub(crate) fn admitted_by(
    biscuit: &Biscuit,
    authorizer: &mut Authorizer,
    invite: &Invite,
    peer: &str,
) -> Result<Option<Key>, TokenError> {
    let signed = (1..biscuit.block_count()).filter_map(|at| biscuit.block_external_key(at).ok()?);
    for key in signed {
        let named = bytes::<32>(&Term::Bytes(key.to_bytes()))?;
        if !invite.root.gateways.iter().any(|(gateway, _)| *gateway == named) {
            continue;
        }
        for found in membership::query(authorizer, "admitted", 3, Some(key))? {
            let whom = matches!(&found[1], Term::Str(whom) if peer.is_empty() || whom == peer);
            if whom && bytes(&found[0]).is_ok_and(|serial: Serial| serial == invite.serial()) {
                return Ok(Some(named));
            }
        }
    }
    Ok(None)
}

/// The same token with the block of the gateway that holds `secret`. The caller has checked and
/// counted.
pub fn admit(
    secret: &[u8],
    owner: &[u8],
    token: &[u8],
    serial: &Serial,
    peer: &str,
    wall: u64,
) -> Result<Vec<u8>, TokenError> {
    let serial = Term::Bytes(serial.to_vec());
    let terms = vec![serial, Term::Str(peer.into()), Term::Date(wall)];
    let block = BlockBuilder::new()
        .fact(Fact::new("admitted".into(), terms))
        .map_err(|error| TokenError::Making(error.to_string()))?;
    membership::append_signed(secret, owner, token, block)
}

fn bytes<const COUNT: usize>(term: &Term) -> Result<[u8; COUNT], TokenError> {
    match term {
        Term::Bytes(bytes) => bytes.as_slice().try_into().map_err(|_| TokenError::Malformed),
        _ => Err(TokenError::Malformed),
    }
}

fn number(term: &Term) -> Result<u32, TokenError> {
    match term {
        Term::Integer(number) => u32::try_from(*number).map_err(|_| TokenError::Malformed),
        _ => Err(TokenError::Malformed),
    }
}
