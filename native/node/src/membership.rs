//! Tokens: one kind, biscuits, for members, users and clusters.
//!
//! ```text
//! owner's block   swarm("…") user("…") role("…") action("…") priority_max(n) cap("…", n)
//!                 cluster("…") expires(date)                      grants
//!                 member("…"): the peer that the owner made a member
//!                 invite(…): see `invite`; a gateway makes members by it
//!                 delegate(key): the next block must be signed by that key
//! key's block     the same facts, signed by the delegate         grants less
//! later blocks    limit("roles", […]), limit("expires", date) …   narrow
//!                 check if peer("…")                              binds
//! ```
//!
//! A member's token says by whom it was admitted: the owner, who names the peer, or a gateway of
//! an invite. Roles in any other token are good for nothing, since whoever holds it could bind it
//! to as many peers as they like.
//!
//! Anybody who holds a token can append a block offline, and nobody can take one away. A
//! token that a peer presents must be bound to it: encryption has proven the peer id before the
//! gate looks, so that a bound token is useless to anybody who overhears it.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use biscuit_auth::{
    Algorithm, Authorizer, AuthorizerBuilder, AuthorizerLimits, Biscuit, BlockBuilder, KeyPair,
    PrivateKey, PublicKey,
    builder::{self, CheckKind, Fact, Rule, Scope, Term},
    error,
};

use crate::{
    invite::{self, Invite, Terms},
    rights::{CAP, NEVER, Rights, Unknown, mask_of},
};

pub const MAX_TOKEN_BYTES: usize = 8 * 1024;
const MAX_BLOCKS: usize = 16;
/// Names nobody: a token that passes for it is bound to no peer.
const NOBODY: &str = "";
/// Generous in time, because a busy machine must not refuse members; blocks are from
/// holders of good tokens, and cannot loop.
const LIMITS: AuthorizerLimits =
    AuthorizerLimits { max_facts: 500, max_iterations: 50, max_time: Duration::from_millis(200) };

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("this is no token of Mycel's")]
    Malformed,
    #[error("token is not signed by the swarm's owner: it is forged, or of another swarm")]
    Signature,
    #[error("token is for the swarm {0:?}, not for this one")]
    Swarm(String),
    #[error("token is bound to another peer")]
    WrongPeer,
    #[error("token is not bound to a peer: an invite is redeemed with --join, not presented")]
    Unbound,
    #[error("token is a delegation: the key that it names has to sign what is given on")]
    Delegation,
    #[error("token is an invite's, and no gateway that the invite names has admitted this node")]
    NotAdmitted,
    #[error("token names neither the peer that it is for nor an invite: ask for an invite")]
    Unvouched,
    #[error("invite is used up: {0} may join by it at this gateway, and as many have")]
    UsedUp(u32),
    #[error("token has a restriction {0:?} that this version does not know")]
    Restriction(String),
    #[error("token gives no right to be a member")]
    NoRole,
    #[error("token has expired")]
    Expired,
    #[error("token was revoked")]
    Revoked,
    #[error("token cannot be made: {0}")]
    Making(String),
}

impl TokenError {
    /// A word to count by.
    pub fn kind(&self) -> &'static str {
        match self {
            TokenError::Malformed => "malformed",
            TokenError::Signature => "signature",
            TokenError::Swarm(_) => "swarm",
            TokenError::WrongPeer => "wrong_peer",
            TokenError::Unbound => "unbound",
            TokenError::Delegation => "delegation",
            TokenError::NotAdmitted => "not_admitted",
            TokenError::Unvouched => "unvouched",
            TokenError::UsedUp(_) => "used_up",
            TokenError::Restriction(_) => "restriction",
            TokenError::NoRole => "role",
            TokenError::Expired => "expired",
            TokenError::Revoked => "revoked",
            TokenError::Making(_) => "other",
        }
    }
}

impl From<Unknown> for TokenError {
    fn from(unknown: Unknown) -> TokenError {
        TokenError::Restriction(unknown.0)
    }
}

/// What a good token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub rights: Rights,
    /// One for each block: to revoke one revokes everything that was made from it.
    pub revocation_ids: Vec<[u8; 32]>,
    /// Of the key that vouches for it: the owner's, or one that the owner delegated to.
    pub signer: [u8; 32],
    pub is_bound: bool,
    /// The peer that the owner made a member by it.
    pub member: Option<String>,
    pub invite: Option<Invite>,
}

/// What a block grants or narrows. Nothing is said of what is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    pub user: Option<String>,
    pub roles: Option<Vec<String>>,
    pub actions: Option<Vec<String>>,
    pub priority_max: Option<i64>,
    pub caps: BTreeMap<String, i64>,
    pub cluster: Option<String>,
    pub expires_at: Option<u64>,
    /// Makes this peer a member, and binds to it. Of the owner's block alone.
    pub peer: Option<String>,
    pub invite: Option<Terms>,
}

/// A token of the owner's; unbound unless it names a peer.
pub fn issue(owner: &[u8], swarm: &str, grant: &Statement) -> Result<Vec<u8>, TokenError> {
    let block = granting(grant)?.fact(text("swarm", swarm)).map_err(making)?;
    build(owner, block)
}

/// A token that is good for nothing but for `key` to sign what it gives on.
pub fn delegate(
    owner: &[u8],
    swarm: &str,
    key: &[u8],
    grant: &Statement,
) -> Result<Vec<u8>, TokenError> {
    let key = public(key)?.to_bytes();
    let block = granting(grant)?
        .fact(text("swarm", swarm))
        .and_then(|block| block.fact(Fact::new("delegate".into(), vec![Term::Bytes(key)])))
        .map_err(making)?;
    build(owner, block)
}

/// What the delegate gives on; unbound.
pub fn issue_delegated(
    secret: &[u8],
    owner: &[u8],
    delegation: &[u8],
    grant: &Statement,
) -> Result<Vec<u8>, TokenError> {
    if grant.peer.is_some() {
        let text = "a delegate makes no members by itself: it invites them";
        return Err(TokenError::Making(text.into()));
    }
    let key = keypair(secret)?;
    let named = delegate_of(&mut authorizer(&signed(owner, delegation)?, NOBODY, 0)?)?;
    if named.as_deref() != Some(&key.public().to_bytes()[..]) {
        return Err(TokenError::Making("the delegation names another key".into()));
    }
    append_signed(secret, owner, delegation, granting(grant)?)
}

/// The same token with a block that another key signs.
pub(crate) fn append_signed(
    secret: &[u8],
    owner: &[u8],
    token: &[u8],
    block: BlockBuilder,
) -> Result<Vec<u8>, TokenError> {
    let token = signed(owner, token)?;
    has_room(&token)?;
    let key = keypair(secret)?;
    let request = token.third_party_request().map_err(making)?;
    let block = request.create_block(&key.private(), block).map_err(making)?;
    let token = token.append_third_party(key.public(), block).map_err(making)?;
    token.to_vec().map_err(making)
}

/// The terms of an invite, or of a delegation that lets its key invite. Nothing else of the token
/// is judged.
pub fn terms(owner: &[u8], token: &[u8]) -> Result<Option<Terms>, TokenError> {
    invite::terms(&mut authorizer(&signed(owner, token)?, NOBODY, 0)?, None)
}

/// The same token with less in it.
pub fn narrow(owner: &[u8], token: &[u8], limits: &Statement) -> Result<Vec<u8>, TokenError> {
    append(&signed(owner, token)?, limiting(limits)?)
}

/// The same token, good for this peer alone.
pub fn bind(owner: &[u8], token: &[u8], peer: &str) -> Result<Vec<u8>, TokenError> {
    append(&signed(owner, token)?, bound(BlockBuilder::new(), peer)?)
}

fn bound(block: BlockBuilder, peer: &str) -> Result<BlockBuilder, TokenError> {
    let peer = builder::pred("peer", &[builder::string(peer)]);
    block.check(builder::check(&[peer], CheckKind::One)).map_err(making)
}

/// What a token says if the owner, or a key that the owner delegated to, signed it and it
/// holds for `peer` (an empty name asks nothing). Expiry and revocation are not judged here:
/// they change while a token does not.
pub fn inspect(owner: &[u8], peer: &str, wall: u64, token: &[u8]) -> Result<Token, TokenError> {
    let biscuit = signed(owner, token)?;
    let mut theirs = authorizer(&biscuit, peer, wall)?;
    let holds = theirs.authorize().is_ok();
    let is_bound = if peer == NOBODY {
        !holds
    } else if !holds {
        return Err(TokenError::WrongPeer);
    } else {
        authorizer(&biscuit, NOBODY, wall)?.authorize().is_err()
    };
    let mut rights = granted(&mut theirs, None)?;
    let mut signer = to_array(owner)?;
    let mut member = texts(&mut theirs, "member", None)?.pop();
    let mut invite = invite::terms(&mut theirs, None)?.map(|root| Invite {
        root,
        delegated: None,
        root_ends_at: rights.expires_at,
        delegated_ends_at: NEVER,
        admitted_by: None,
    });
    if let Some(key) = delegate_of(&mut theirs)? {
        let key = public(&key)?;
        // The block right behind: any other order would let somebody else come between.
        if biscuit.block_external_key(1).ok().flatten() != Some(key) {
            return Err(TokenError::Delegation);
        }
        let given_on = granted(&mut theirs, Some(key))?;
        rights.meet(&given_on);
        signer = to_array(&key.to_bytes())?;
        // Who was given the right to invite makes members by invites, and in no other way.
        member = None;
        let delegated = invite::terms(&mut theirs, Some(key))?;
        let delegated_ends_at = given_on.expires_at;
        invite = invite.filter(|_| delegated.is_some()).map(|one| Invite {
            delegated,
            delegated_ends_at,
            ..one
        });
    }
    if let Some(invite) = &mut invite {
        invite.admitted_by = invite::admitted_by(&biscuit, &mut theirs, invite, peer)?;
    }
    for (key, value) in restrictions(&mut theirs)? {
        rights.narrow(&key, &value)?;
    }
    let ids = biscuit.revocation_identifiers();
    let revocation_ids = ids.iter().map(|id| *blake3::hash(id).as_bytes()).collect();
    Ok(Token { rights, revocation_ids, signer, is_bound, member, invite })
}

// What blocks hold

fn granting(grant: &Statement) -> Result<BlockBuilder, TokenError> {
    let mut facts = Vec::new();
    facts.extend(grant.user.iter().map(|user| text("user", user)));
    facts.extend(grant.roles.iter().flatten().map(|role| text("role", role)));
    facts.extend(grant.actions.iter().flatten().map(|action| text("action", action)));
    facts.extend(grant.cluster.iter().map(|cluster| text("cluster", cluster)));
    facts.extend(grant.priority_max.map(|most| fact("priority_max", [Term::Integer(most)])));
    facts.extend(grant.expires_at.map(|when| fact("expires", [Term::Date(when)])));
    facts.extend(
        grant
            .caps
            .iter()
            .map(|(name, most)| fact("cap", [Term::Str(name.clone()), Term::Integer(*most)])),
    );
    if let Some(terms) = &grant.invite {
        facts.extend(invite::facts(terms)?);
    }
    match &grant.peer {
        None => block(facts),
        Some(peer) => {
            facts.push(text("member", peer));
            bound(block(facts)?, peer)
        }
    }
}

fn limiting(limits: &Statement) -> Result<BlockBuilder, TokenError> {
    if limits.invite.is_some() || limits.peer.is_some() {
        return Err(TokenError::Making("a block that narrows makes no members".into()));
    }
    let set = |names: &Vec<String>| Term::Set(names.iter().cloned().map(Term::Str).collect());
    let mut facts = Vec::new();
    let mut limit = |key: &str, value| facts.push(fact("limit", [Term::Str(key.into()), value]));
    limits.user.iter().for_each(|user| limit("user", Term::Str(user.clone())));
    limits.cluster.iter().for_each(|name| limit("cluster", Term::Str(name.clone())));
    limits.roles.iter().for_each(|roles| limit("roles", set(roles)));
    limits.actions.iter().for_each(|actions| limit("actions", set(actions)));
    limits.priority_max.iter().for_each(|most| limit("priority_max", Term::Integer(*most)));
    limits.expires_at.iter().for_each(|when| limit("expires", Term::Date(*when)));
    for (name, most) in &limits.caps {
        limit(&format!("{CAP}{name}"), Term::Integer(*most));
    }
    block(facts)
}

/// The grant of the owner's block, or of the delegate's.
fn granted(authorizer: &mut Authorizer, key: Option<PublicKey>) -> Result<Rights, TokenError> {
    let mut one = |name: &str| texts(authorizer, name, key);
    let (swarm, user, cluster) = (one("swarm")?.pop(), one("user")?.pop(), one("cluster")?.pop());
    let (roles, actions) = (one("role")?, one("action")?);
    let mut rights = Rights {
        swarm: swarm.unwrap_or_default(),
        user,
        roles: mask_of(roles.iter().map(String::as_str)),
        actions: actions.into_iter().collect(),
        priority_max: None,
        caps: BTreeMap::new(),
        cluster,
        expires_at: NEVER,
    };
    for terms in query(authorizer, "priority_max", 1, key)? {
        rights.narrow("priority_max", &terms[0])?;
    }
    for terms in query(authorizer, "expires", 1, key)? {
        rights.narrow("expires", &terms[0])?;
    }
    for terms in query(authorizer, "cap", 2, key)? {
        if let Term::Str(name) = &terms[0] {
            rights.narrow(&format!("{CAP}{name}"), &terms[1])?;
        }
    }
    Ok(rights)
}

/// Of all blocks, the owner's included. Facts come in any order: a part of a user stands behind
/// the user that it is a part of, so that the same token always means the same.
fn restrictions(authorizer: &mut Authorizer) -> Result<Vec<(String, Term)>, TokenError> {
    let mut facts: Vec<Fact> = authorizer.query_all(rule("limit", 2, None)).map_err(malformed)?;
    facts.sort_by(|one, two| one.predicate.terms.cmp(&two.predicate.terms));
    facts
        .into_iter()
        .map(|fact| match <[Term; 2]>::try_from(fact.predicate.terms) {
            Ok([Term::Str(key), value]) => Ok((key, value)),
            _ => Err(TokenError::Restriction("limit".into())),
        })
        .collect()
}

fn delegate_of(authorizer: &mut Authorizer) -> Result<Option<Vec<u8>>, TokenError> {
    let found = query(authorizer, "delegate", 1, None)?.into_iter().next();
    match found.as_deref() {
        None => Ok(None),
        Some([Term::Bytes(key)]) => Ok(Some(key.clone())),
        Some(_) => Err(TokenError::Malformed),
    }
}

fn texts(
    authorizer: &mut Authorizer,
    name: &str,
    key: Option<PublicKey>,
) -> Result<Vec<String>, TokenError> {
    let found = query(authorizer, name, 1, key)?;
    let text = |terms: Vec<Term>| match terms.into_iter().next() {
        Some(Term::Str(text)) => Ok(text),
        _ => Err(TokenError::Malformed),
    };
    found.into_iter().map(text).collect()
}

/// Facts of the owner's block, or of those that `key` signed.
pub(crate) fn query(
    authorizer: &mut Authorizer,
    name: &str,
    terms: usize,
    key: Option<PublicKey>,
) -> Result<Vec<Vec<Term>>, TokenError> {
    let facts: Vec<Fact> = authorizer.query(rule(name, terms, key)).map_err(malformed)?;
    Ok(facts.into_iter().map(|fact| fact.predicate.terms).collect())
}

fn rule(name: &str, terms: usize, key: Option<PublicKey>) -> Rule {
    let variables: Vec<Term> = (0..terms).map(|n| builder::variable(&format!("t{n}"))).collect();
    let scopes = key.map(Scope::PublicKey).into_iter().collect();
    Rule::new(
        builder::Predicate::new("found".into(), variables.clone()),
        vec![builder::Predicate::new(name.into(), variables)],
        vec![],
        scopes,
    )
}

fn authorizer(biscuit: &Biscuit, peer: &str, wall: u64) -> Result<Authorizer, TokenError> {
    let time = builder::date(&(UNIX_EPOCH + Duration::from_secs(wall.min(1 << 40))));
    AuthorizerBuilder::new()
        .fact(text("peer", peer))
        .and_then(|made| made.fact(fact("time", [time])))
        .and_then(|made| made.policy("allow if true"))
        .and_then(|made| made.set_limits(LIMITS).build(biscuit))
        .map_err(malformed)
}

// Small things

/// The signatures of all blocks, up to the owner's key.
fn signed(owner: &[u8], token: &[u8]) -> Result<Biscuit, TokenError> {
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::Malformed);
    }
    let biscuit = Biscuit::from(token, public(owner)?).map_err(|error| match error {
        error::Token::Format(error::Format::Signature(_)) => TokenError::Signature,
        _ => TokenError::Malformed,
    })?;
    match biscuit.block_count() > MAX_BLOCKS {
        true => Err(TokenError::Malformed),
        false => Ok(biscuit),
    }
}

fn build(secret: &[u8], block: BlockBuilder) -> Result<Vec<u8>, TokenError> {
    let token = Biscuit::builder().merge(block).build(&keypair(secret)?).map_err(making)?;
    token.to_vec().map_err(making)
}

fn has_room(token: &Biscuit) -> Result<(), TokenError> {
    match token.block_count() >= MAX_BLOCKS {
        true => Err(TokenError::Making(format!("it has {MAX_BLOCKS} blocks already"))),
        false => Ok(()),
    }
}

fn append(token: &Biscuit, block: BlockBuilder) -> Result<Vec<u8>, TokenError> {
    has_room(token)?;
    token.append(block).and_then(|token| token.to_vec()).map_err(making)
}

fn block(facts: Vec<Fact>) -> Result<BlockBuilder, TokenError> {
    facts.into_iter().try_fold(BlockBuilder::new(), |block, fact| block.fact(fact)).map_err(making)
}

fn fact<const COUNT: usize>(name: &str, terms: [Term; COUNT]) -> Fact {
    Fact::new(name.into(), terms.to_vec())
}

fn text(name: &str, value: &str) -> Fact {
    fact(name, [builder::string(value)])
}

fn keypair(secret: &[u8]) -> Result<KeyPair, TokenError> {
    let key = PrivateKey::from_bytes(secret, Algorithm::Ed25519)
        .map_err(|_| TokenError::Making("the signing key is no Ed25519 key".into()))?;
    Ok(KeyPair::from(&key))
}

fn public(key: &[u8]) -> Result<PublicKey, TokenError> {
    PublicKey::from_bytes(key, Algorithm::Ed25519)
        .map_err(|_| TokenError::Making("no Ed25519 public key of 32 bytes".into()))
}

fn to_array(key: &[u8]) -> Result<[u8; 32], TokenError> {
    key.try_into().map_err(|_| TokenError::Malformed)
}

fn making(error: error::Token) -> TokenError {
    TokenError::Making(error.to_string())
}

fn malformed(_: error::Token) -> TokenError {
    TokenError::Malformed
}
