//! What an invite is good for, and how often.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    time::{Duration, Instant},
};

use common::{
    DEADLINE, Member, Owner, SWARM, WORK,
    invites::{
        Gateway, Home, granted, invite, newcomer, newcomer_as, public, refused, secret, terms,
    },
    quick,
};
use libp2p::{PeerId, identity::Keypair};
use mycel_node::{
    clock,
    event::Event,
    failure::DialFailure,
    invite::{self, Terms},
    membership::{self, Statement},
    node::Command,
    revocation,
    settings::Settings,
};

#[tokio::test]
async fn a_gateway_makes_a_member_of_a_newcomer_and_the_token_outlives_it() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let other = owner.member();
    let other_address = other.listen().await;
    let invite = invite(&owner, terms(1, &[(gateway.public(), 0)], &[(0, 1)]));
    let key = Keypair::generate_ed25519();
    let machine = newcomer_as(&owner, &invite, key.clone());
    assert!(refused(&machine, &other_address).await.contains("no gateway that the invite names"));
    assert_eq!(machine.dial(&gateway.address).await, Ok(gateway.member.peer));
    let token = granted(&machine).await;
    let told = machine.count(|event| matches!(event, Event::Admitted { .. }));
    assert_eq!(told, 1);
    // The same process shows its new token to everybody from now on.
    assert_eq!(machine.dial(&other_address).await, Ok(other.peer));
    machine.open(other.peer, WORK).await;
    machine.node.stop();
    gateway.member.node.stop();
    let again = owner.start(key, token, quick());
    assert_eq!(again.dial(&other_address).await, Ok(other.peer));
    assert_eq!(again.count(|event| matches!(event, Event::Admitted { .. })), 0);
}

#[tokio::test]
async fn of_twenty_identities_as_many_get_in_as_may() {
    let (owner, home) = (Owner::new(), Home::new());
    let one = Gateway::start(&owner, &home).await;
    let two = Gateway::start(&owner, &home).await;
    let gateways = [(one.public(), 0), (two.public(), 0)];
    let invite = invite(&owner, terms(1, &gateways, &[(0, 3)]));
    let machines: Vec<Member> = (0..20).map(|_| newcomer(&owner, &invite)).collect();
    // All at once, at two gateways that share a folder.
    let dial = |(number, machine): (usize, &Member)| {
        let address = [&one.address, &two.address][number % 2].clone();
        machine.node.send(Command::Dial { address: address.parse().unwrap(), text: address })
    };
    machines.iter().enumerate().for_each(|one| dial(one).unwrap());
    let mut errors = Vec::new();
    for machine in &machines {
        let end = |event: &Event| match event {
            Event::DialSucceeded { .. } => Some(None),
            Event::DialFailed { error, .. } => Some(Some(error.clone())),
            _ => None,
        };
        errors.extend(machine.take("the dial's end", end).await);
    }
    assert_eq!(errors.len(), 17);
    assert!(
        errors.iter().all(|error| error.contains("invite is used up: 3 may join")),
        "{errors:?}"
    );
    // Whoever is in comes in again, at either gateway, and nobody else does.
    let inside: Vec<&Member> = machines
        .iter()
        .filter(|machine| machine.count(|event| matches!(event, Event::Admitted { .. })) == 1)
        .collect();
    assert_eq!(inside.len(), 3);
    for machine in inside {
        assert!(machine.dial(&one.address).await.is_ok());
        assert!(machine.dial(&two.address).await.is_ok());
    }
    assert!(refused(&newcomer(&owner, &invite), &two.address).await.contains("used up"));
}

#[tokio::test]
async fn gateways_with_folders_of_their_own_split_the_number() {
    let (owner, here, there) = (Owner::new(), Home::new(), Home::new());
    let one = Gateway::start(&owner, &here).await;
    let two = Gateway::start(&owner, &there).await;
    let gateways = [(one.public(), 0), (two.public(), 1)];
    let invite = invite(&owner, terms(1, &gateways, &[(0, 2), (1, 1)]));
    let mut inside = 0;
    for number in 0..8 {
        let address = [&one.address, &two.address][number % 2];
        inside += usize::from(newcomer(&owner, &invite).dial(address).await.is_ok());
    }
    assert_eq!(inside, 3);
}

#[tokio::test]
async fn a_gateway_that_lost_its_answer_gives_it_again() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let invite = invite(&owner, terms(1, &[(gateway.public(), 0)], &[(0, 1)]));
    let key = Keypair::generate_ed25519();
    // The answer never reached its disk: it comes again with nothing but the invite.
    for _ in 0..3 {
        let machine = newcomer_as(&owner, &invite, key.clone());
        machine.dial(&gateway.address).await.unwrap();
        granted(&machine).await;
        machine.node.stop();
    }
    assert!(refused(&newcomer(&owner, &invite), &gateway.address).await.contains("used up"));
    // Nor does the gateway forget whom it has counted.
    gateway.member.node.stop();
    let gateway = Gateway::start_with(&owner, &home, gateway.key, quick()).await;
    assert!(refused(&newcomer(&owner, &invite), &gateway.address).await.contains("used up"));
    newcomer_as(&owner, &invite, key).dial(&gateway.address).await.unwrap();
}

#[tokio::test]
async fn a_gateway_that_cannot_count_admits_nobody() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let invite = invite(&owner, terms(1, &[(gateway.public(), 0)], &[(0, 1)]));
    fs::create_dir(home.0.join("joins")).unwrap();
    let machine = newcomer(&owner, &invite);
    assert!(refused(&machine, &gateway.address).await.contains("cannot count who joins"));
    fs::remove_dir(home.0.join("joins")).unwrap();
    machine.dial(&gateway.address).await.unwrap();
}

#[tokio::test]
async fn forged_admissions_are_refused() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let unnamed = Gateway::start(&owner, &home).await;
    let other = owner.member();
    let address = other.listen().await;
    let terms_of = |serial| terms(serial, &[(gateway.public(), 0)], &[(0, 5)]);
    let mine = invite(&owner, terms_of(1));
    let key = Keypair::generate_ed25519();
    let peer = key.public().to_peer_id();
    let bound = owner.bind(&mine, &peer);
    let stamp = |key: &Keypair, token: &[u8], serial: u8, peer: &PeerId| {
        let (serial, peer, now) = ([serial; 16], peer.to_base58(), clock::wall_seconds());
        invite::admit(&secret(key), &owner.public(), token, &serial, &peer, now).unwrap()
    };
    let genuine = stamp(&gateway.key, &bound, 1, &peer);
    let stranger = PeerId::random();
    // A delegate who was given no invites, and one who was given them for another key.
    let delegate = Keypair::generate_ed25519();
    let delegated = |grant: Statement, own: Option<Terms>| {
        let key = public(&delegate);
        let given = membership::delegate(&owner.secret(), SWARM, &key, &grant).unwrap();
        let own = Statement { invite: own, ..owner.grant(3600) };
        let secret = secret(&delegate);
        let token = membership::issue_delegated(&secret, &owner.public(), &given, &own).unwrap();
        owner.bind(&token, &peer)
    };
    let invites = Statement { invite: Some(terms_of(2)), ..owner.grant(3600) };
    let named_itself = terms(3, &[(public(&delegate), 0)], &[(0, 5)]);
    let tokens = [
        ("the raw invite", mine.clone()),
        ("the bound invite", bound.clone()),
        ("signed by a key that nobody named", stamp(&key, &bound, 1, &peer)),
        (
            "signed by a gateway that the invite does not name",
            stamp(&unnamed.key, &bound, 1, &peer),
        ),
        ("signed by the owner", stamp(&owner.0, &bound, 1, &peer)),
        ("of another serial", stamp(&gateway.key, &bound, 2, &peer)),
        ("for another peer", stamp(&gateway.key, &bound, 1, &stranger)),
        ("a bare role", owner.bind(&owner.unbound(3600), &peer)),
        ("of a delegate without invites", delegated(owner.grant(3600), None)),
        ("of a delegate, its own terms", delegated(owner.grant(3600), Some(named_itself.clone()))),
        ("of a delegate, not admitted", delegated(invites.clone(), Some(named_itself.clone()))),
        (
            "of a delegate that admits by itself",
            stamp(&delegate, &delegated(invites.clone(), Some(named_itself)), 3, &peer),
        ),
        ("of a delegate that leaves the terms away", delegated(invites, None)),
    ];
    for (what, token) in tokens {
        let thief = owner.start(key.clone(), token, quick());
        let found = thief.dial(&address).await;
        assert!(matches!(found, Err((DialFailure::NotAdmitted(_), _))), "{what}: {found:?}");
        thief.node.stop();
    }
    // A member's token in another's hands, bound once more or not.
    for token in [genuine.clone(), owner.bind(&genuine, &stranger)] {
        let thief = owner.start(Keypair::generate_ed25519(), token, quick());
        refused(&thief, &address).await;
    }
    assert_eq!(other.connected(), 0);
    let honest = owner.start(key, genuine, quick());
    assert_eq!(honest.dial(&address).await, Ok(other.peer));
}

#[tokio::test]
async fn an_admission_moves_to_no_other_token() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let mine = invite(&owner, terms(1, &[(gateway.public(), 0)], &[(0, 5)]));
    let machine = newcomer(&owner, &mine);
    machine.dial(&gateway.address).await.unwrap();
    let token = granted(&machine).await;
    let other = owner.member();
    let address = other.listen().await;
    // For two peers at once: the gateway vouches for the one that asked.
    let either = Keypair::generate_ed25519();
    let root =
        biscuit_auth::PublicKey::from_bytes(&owner.public(), biscuit_auth::Algorithm::Ed25519)
            .unwrap();
    let two =
        format!(r#"check if peer("{}") or peer("{}")"#, machine.peer, either.public().to_peer_id());
    let plain = biscuit_auth::Biscuit::from(&mine, root).unwrap();
    let wide = plain.append(biscuit_auth::BlockBuilder::new().code(two).unwrap()).unwrap();
    let wide = wide.to_vec().unwrap();
    let asker = owner.start(either.clone(), wide.clone(), quick());
    asker.dial(&gateway.address).await.unwrap();
    let shared = granted(&asker).await;
    asker.node.stop();
    let both = owner.start(either, shared.clone(), quick());
    both.dial(&address).await.unwrap();
    // What it says holds for nobody else whom the check would let through.
    let found = membership::inspect(
        &owner.public(),
        &machine.peer.to_base58(),
        clock::wall_seconds(),
        &shared,
    );
    assert_eq!(found.unwrap().invite.unwrap().admitted_by, None);
    let found = membership::inspect(
        &owner.public(),
        &machine.peer.to_base58(),
        clock::wall_seconds(),
        &token,
    );
    assert_eq!(found.unwrap().invite.unwrap().admitted_by, Some(gateway.public()));
}

#[tokio::test]
async fn neither_an_ended_nor_a_revoked_invite_is_exchanged() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let of = terms(1, &[(gateway.public(), 0)], &[(0, 5)]);
    let ended = owner.issue(&Statement { invite: Some(of.clone()), ..owner.grant(-10) });
    assert!(refused(&newcomer(&owner, &ended), &gateway.address).await.contains("expired"));
    let good = invite(&owner, of);
    let inside = newcomer(&owner, &good);
    inside.dial(&gateway.address).await.unwrap();
    let id = membership::inspect(&owner.public(), "", 0, &good).unwrap().revocation_ids[0];
    let record = revocation::sign(&owner.0, SWARM, &id, clock::wall_seconds() + 3600).unwrap();
    assert_eq!(gateway.member.node.revoke(&[record]).unwrap(), [true]);
    // It ends whoever joined by it, too.
    let gone = |event: &Event| match event {
        Event::Disconnected { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    assert!(gateway.member.wait("the end", gone).await.contains("revoked"));
    assert!(refused(&newcomer(&owner, &good), &gateway.address).await.contains("revoked"));
    assert!(refused(&inside, &gateway.address).await.contains("revoked"));
}

#[tokio::test]
async fn a_delegate_cannot_invite_more_than_it_was_given() {
    let (owner, home) = (Owner::new(), Home::new());
    let gateway = Gateway::start(&owner, &home).await;
    let delegate = Keypair::generate_ed25519();
    let of = terms(1, &[(gateway.public(), 0)], &[(0, 2)]);
    let grant = Statement { invite: Some(of), ..owner.grant(3600) };
    let key = public(&delegate);
    let given = membership::delegate(&owner.secret(), SWARM, &key, &grant).unwrap();
    let mut inside = 0;
    for serial in 10..16 {
        let own = Statement { invite: Some(terms(serial, &[], &[(0, 9)])), ..owner.grant(3600) };
        let invite =
            membership::issue_delegated(&secret(&delegate), &owner.public(), &given, &own).unwrap();
        for _ in 0..2 {
            inside += usize::from(newcomer(&owner, &invite).dial(&gateway.address).await.is_ok());
        }
    }
    assert_eq!(inside, 2);
}

#[test]
fn whoever_shortens_its_own_time_is_counted_for_as_long_as_the_invite_lasts() {
    let owner = Owner::new();
    let (gateway, delegate) = (Keypair::generate_ed25519(), Keypair::generate_ed25519());
    let of = terms(1, &[(public(&gateway), 0)], &[(0, 1)]);
    let now = clock::wall_seconds();
    let shortened = |token: &[u8]| {
        let soon = Statement { expires_at: Some(now + 1), ..Statement::default() };
        let token = membership::narrow(&owner.public(), token, &soon).unwrap();
        let found = membership::inspect(&owner.public(), "", now, &token).unwrap();
        assert_eq!(found.rights.expires_at, now + 1);
        found.invite.unwrap().quotas(&public(&gateway))
    };
    let quotas = shortened(&invite(&owner, of.clone()));
    assert!(quotas.iter().all(|quota| quota.ends_at >= now + 3600));
    // The delegation's count outlives the delegate's invite, and no serial of the delegate's is
    // one of the owner's.
    let grant = Statement { invite: Some(of), ..owner.grant(7200) };
    let given = membership::delegate(&owner.secret(), SWARM, &public(&delegate), &grant).unwrap();
    let own = Statement { invite: Some(terms(1, &[], &[(0, 1)])), ..owner.grant(60) };
    let token =
        membership::issue_delegated(&secret(&delegate), &owner.public(), &given, &own).unwrap();
    let quotas = shortened(&token);
    assert_eq!(quotas.len(), 2);
    assert!(quotas[0].ends_at >= now + 7200 && quotas[1].ends_at < now + 3600);
    assert_ne!(quotas[0].serial, quotas[1].serial);
}

#[tokio::test]
async fn forged_revocations_are_not_passed_on() {
    let owner = Owner::new();
    let lively = || Settings { gossip_heartbeat: Duration::from_millis(100), ..quick() };
    let start = || owner.member_with(lively(), 3600);
    // In a row: what reaches the last one was passed on by the one between.
    let (source, between, last) = (start(), start(), start());
    let address = between.listen().await;
    let topic = revocation::topic(SWARM);
    for node in [&source, &between, &last] {
        node.node.send(Command::Subscribe { topic: topic.clone() }).unwrap();
    }
    source.dial(&address).await.unwrap();
    last.dial(&address).await.unwrap();
    let packed = |record: &[u8]| [&[0x91, 0xc4, record.len() as u8][..], record].concat();
    let publish = |data: Vec<u8>| {
        source.node.send(Command::Publish { topic: topic.clone(), data }).unwrap();
    };
    let later = clock::wall_seconds() + 3600;
    let heard = |member: &Member| member.count(|event| matches!(event, Event::Gossip { .. }));
    // Genuine ones until the mesh stands, each a new one.
    let (deadline, mut number) = (Instant::now() + DEADLINE, 0u8);
    while heard(&last) == 0 {
        assert!(Instant::now() < deadline, "no genuine one comes through");
        number += 1;
        publish(packed(&revocation::sign(&owner.0, SWARM, &[number; 32], later).unwrap()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let forger = Keypair::generate_ed25519();
    for number in 100..105u8 {
        publish(packed(&revocation::sign(&forger, SWARM, &[number; 32], later).unwrap()));
    }
    publish(b"nonsense".to_vec());
    let ended = clock::wall_seconds() - 3600;
    publish(packed(&revocation::sign(&owner.0, SWARM, &[98; 32], ended).unwrap()));
    let invalid = |member: &Member| {
        member.node.shared.figures.snapshot().plain.get("gossip_invalid").copied().unwrap_or(0)
    };
    between.until("the forged ones", |node| invalid(node) == 7).await;
    // A genuine one behind them, so that nothing is still on its way.
    publish(packed(&revocation::sign(&owner.0, SWARM, &[99; 32], later).unwrap()));
    let data_of = |event: &Event, id: u8| match event {
        Event::Gossip { data, .. } => data[3] == id,
        _ => false,
    };
    last.until("the genuine one", |node| node.count(|event| data_of(event, 99)) == 1).await;
    for node in [&between, &last] {
        assert_eq!(node.count(|event| (100..105).any(|id| data_of(event, id))), 0);
        assert_eq!(node.count(|event| data_of(event, 98)), 0);
    }
    assert_eq!(invalid(&last), 0, "nothing of it got this far");
    // Whoever goes on is cut off.
    for number in 0..10u8 {
        publish(packed(&revocation::sign(&forger, SWARM, &[200 + number; 32], later).unwrap()));
    }
    let cut_off = |event: &Event| match event {
        Event::CutOff { peer, reason } => Some((*peer, *reason)),
        _ => None,
    };
    assert_eq!(between.wait("the end", cut_off).await, (source.peer, "forged_gossip"));
}
