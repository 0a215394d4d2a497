//! What tokens hold, and what nobody can do with them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use biscuit_auth::{Algorithm, Biscuit, BlockBuilder, KeyPair, PublicKey};
use libp2p::{PeerId, identity::Keypair};
use mycel_node::{
    membership::{self, Statement, TokenError},
    rights::{NEVER, Rights},
};

const NOW: u64 = 1_800_000_000;

struct Key {
    secret: Vec<u8>,
    public: [u8; 32],
}

fn key() -> Key {
    let pair = Keypair::generate_ed25519().try_into_ed25519().unwrap();
    Key { secret: pair.secret().as_ref().to_vec(), public: pair.public().to_bytes() }
}

fn some(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| name.to_string()).collect())
}

fn full() -> Statement {
    Statement {
        user: Some("alice".into()),
        roles: some(&["worker", "gateway"]),
        actions: some(&["submit", "read", "cancel"]),
        priority_max: Some(10),
        caps: BTreeMap::from([("memory".into(), 5000)]),
        cluster: None,
        expires_at: Some(NOW + 100),
        ..Statement::default()
    }
}

fn rights(owner: &Key, token: &[u8]) -> Rights {
    membership::inspect(&owner.public, "", NOW, token).unwrap().rights
}

#[test]
fn a_token_says_what_the_owner_granted() {
    let owner = key();
    let token = membership::issue(&owner.secret, "home", &full()).unwrap();
    let found = membership::inspect(&owner.public, "", NOW, &token).unwrap();
    assert!(!found.is_bound);
    assert_eq!(found.signer, owner.public);
    assert_eq!(found.revocation_ids.len(), 1);
    let rights = found.rights;
    assert_eq!((rights.swarm.as_str(), rights.user.as_deref()), ("home", Some("alice")));
    assert_eq!((rights.roles, rights.priority_max), (5, Some(10)));
    assert_eq!(rights.actions.iter().collect::<Vec<_>>(), ["cancel", "read", "submit"]);
    assert_eq!((rights.caps["memory"], rights.expires_at), (5000, NOW + 100));
    let empty = membership::issue(&owner.secret, "home", &Statement::default()).unwrap();
    assert_eq!(self::rights(&owner, &empty).expires_at, NEVER);
    assert_eq!(self::rights(&owner, &empty).roles, 0);
}

#[test]
fn binding_holds_for_one_peer() {
    let owner = key();
    let (peer, thief) = (PeerId::random().to_base58(), PeerId::random().to_base58());
    let token = membership::issue(&owner.secret, "home", &full()).unwrap();
    let unbound = membership::inspect(&owner.public, &peer, NOW, &token).unwrap();
    assert!(!unbound.is_bound);
    let bound = membership::bind(&owner.public, &token, &peer).unwrap();
    assert!(membership::inspect(&owner.public, &peer, NOW, &bound).unwrap().is_bound);
    let stolen = membership::inspect(&owner.public, &thief, NOW, &bound);
    assert_eq!(stolen.unwrap_err(), TokenError::WrongPeer);
    // To bind it again for oneself does not unbind it.
    let again = membership::bind(&owner.public, &bound, &thief).unwrap();
    for name in [&peer, &thief] {
        let both = membership::inspect(&owner.public, name, NOW, &again);
        assert_eq!(both.unwrap_err(), TokenError::WrongPeer);
    }
}

#[test]
fn a_thousand_wrong_tokens_are_refused_and_each_good_one_between_them_is_not() {
    let (owner, other) = (key(), key());
    let peer = PeerId::random().to_base58();
    let good = membership::issue(&owner.secret, "home", &full()).unwrap();
    let bound = membership::bind(&owner.public, &good, &peer).unwrap();
    let foreign = membership::issue(&other.secret, "home", &full()).unwrap();
    let foreign = membership::bind(&other.public, &foreign, &peer).unwrap();
    let mut accepted = 0;
    for round in 0..250 {
        let thief = PeerId::random().to_base58();
        accepted += usize::from(membership::inspect(&owner.public, &thief, NOW, &bound).is_ok());
        accepted += usize::from(membership::inspect(&owner.public, &peer, NOW, &foreign).is_ok());
        let mut forged = bound.clone();
        forged[round * 7 % bound.len()] ^= 1 << (round % 8);
        // A flipped bit may leave the token as it was only if the encoding ignores it.
        let forged = membership::inspect(&owner.public, &peer, NOW, &forged);
        accepted += usize::from(forged.is_ok());
        let cut = &bound[..round * bound.len() / 250];
        accepted += usize::from(membership::inspect(&owner.public, &peer, NOW, cut).is_ok());
        assert!(membership::inspect(&owner.public, &peer, NOW, &bound).is_ok(), "the control");
    }
    assert_eq!(accepted, 0);
}

#[test]
fn narrowing_takes_away_and_never_gives() {
    let owner = key();
    let token = membership::issue(&owner.secret, "home", &full()).unwrap();
    let greedy = Statement {
        user: Some("alice/ci".into()),
        roles: some(&["worker", "scheduler"]),
        actions: some(&["read", "admin"]),
        priority_max: Some(99),
        caps: BTreeMap::from([("memory".into(), 9000), ("cpu_cores".into(), 2000)]),
        cluster: Some("rack".into()),
        expires_at: Some(NOW + 1000),
        ..Statement::default()
    };
    let narrowed = membership::narrow(&owner.public, &token, &greedy).unwrap();
    let found = rights(&owner, &narrowed);
    assert_eq!((found.roles, found.priority_max, found.expires_at), (4, Some(10), NOW + 100));
    assert_eq!(found.actions.iter().collect::<Vec<_>>(), ["read"]);
    assert_eq!((found.caps["memory"], found.caps["cpu_cores"]), (5000, 2000));
    assert_eq!((found.user.as_deref(), found.cluster.as_deref()), (Some("alice/ci"), Some("rack")));
    for other in ["bob", "alicia", "alice2/ci", ""] {
        let limits = Statement { user: Some(other.into()), ..Statement::default() };
        let token = membership::narrow(&owner.public, &token, &limits).unwrap();
        let found = rights(&owner, &token);
        assert_eq!((found.user, found.roles, found.expires_at), (None, 0, 0), "{other}");
    }
}

/// What somebody who holds a token can append with a tool of their own.
#[test]
fn facts_of_later_blocks_grant_nothing() {
    let owner = key();
    let token = membership::issue(&owner.secret, "home", &full()).unwrap();
    let root = PublicKey::from_bytes(&owner.public, Algorithm::Ed25519).unwrap();
    let append = |code: &str| {
        let block = BlockBuilder::new().code(code).unwrap();
        Biscuit::from(&token, root).unwrap().append(block).unwrap().to_vec().unwrap()
    };
    let greedy = append(
        r#"role("scheduler"); action("admin"); user("bob"); swarm("office"); expires(2100-01-01T00:00:00Z);
           role($role) <- action($any), role($role); priority_max(1000); peer("x");"#,
    );
    assert_eq!(rights(&owner, &greedy), rights(&owner, &token));
    let peer = append(r#"peer("me"); check if peer("me");"#);
    let found = membership::inspect(&owner.public, "thief", NOW, &peer);
    // The fact is the block's own, and satisfies its own check: the token is then unbound.
    assert!(found.is_err() || !found.unwrap().is_bound);
    let unknown = append(r#"limit("colour", "red");"#);
    let refused = membership::inspect(&owner.public, "", NOW, &unknown);
    assert_eq!(refused.unwrap_err(), TokenError::Restriction("colour".into()));
    let ended = append("check if time($now), $now < 2001-01-01T00:00:00Z;");
    assert!(membership::inspect(&owner.public, "me", NOW, &ended).is_err());
}

#[test]
fn a_delegate_gives_on_less_than_it_has() {
    let (owner, manager, thief) = (key(), key(), key());
    let ceiling = Statement { user: None, ..full() };
    let delegation =
        membership::delegate(&owner.secret, "home", &manager.public, &ceiling).unwrap();
    let alone = membership::inspect(&owner.public, "", NOW, &delegation);
    assert_eq!(alone.unwrap_err(), TokenError::Delegation);
    let grant = Statement {
        user: Some("bob".into()),
        roles: some(&["worker", "scheduler"]),
        actions: some(&["submit", "admin"]),
        expires_at: Some(NOW + 5000),
        ..Statement::default()
    };
    let give =
        |key: &Key| membership::issue_delegated(&key.secret, &owner.public, &delegation, &grant);
    assert!(give(&thief).is_err());
    let token = give(&manager).unwrap();
    let found = membership::inspect(&owner.public, "", NOW, &token).unwrap();
    assert_eq!(found.signer, manager.public);
    assert_eq!((found.rights.roles, found.rights.expires_at), (4, NOW + 100));
    assert_eq!(found.rights.actions.iter().collect::<Vec<_>>(), ["submit"]);
    assert_eq!(found.rights.user.as_deref(), Some("bob"));
    // A block that the thief signs, or nobody, is not the delegate's.
    let root = PublicKey::from_bytes(&owner.public, Algorithm::Ed25519).unwrap();
    let plain = Biscuit::from(&delegation, root).unwrap();
    let block = || BlockBuilder::new().code(r#"user("eve"); role("worker");"#).unwrap();
    let stolen = KeyPair::new();
    let request = plain.third_party_request().unwrap();
    let signed = request.create_block(&stolen.private(), block()).unwrap();
    let third = plain.append_third_party(stolen.public(), signed).unwrap();
    for token in [plain.append(block()).unwrap(), third] {
        let found = membership::inspect(&owner.public, "", NOW, &token.to_vec().unwrap());
        assert_eq!(found.unwrap_err(), TokenError::Delegation);
    }
    let narrowed = Statement { roles: some(&["gateway"]), ..Statement::default() };
    let narrowed = membership::narrow(&owner.public, &token, &narrowed).unwrap();
    assert_eq!(rights(&owner, &narrowed).roles, 0);
}

#[test]
fn names_cannot_smuggle_facts() {
    let owner = key();
    let name = r#"x"); role("gateway"); user("owner"#;
    let grant = Statement { user: Some(name.into()), ..Statement::default() };
    let token = membership::issue(&owner.secret, "home", &grant).unwrap();
    let found = rights(&owner, &token);
    assert_eq!((found.user.as_deref(), found.roles), (Some(name), 0));
}
