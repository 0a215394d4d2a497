//! Gateways that admit by invites, and newcomers.

use std::{collections::BTreeMap, fs, path::PathBuf};

use libp2p::{PeerId, identity::Keypair};
use mycel_node::{
    event::Event,
    invite::{Key, Terms},
    membership::Statement,
    settings::Settings,
};

use super::{Member, Owner, quick};

/// A folder that gateways share, removed in the end.
pub struct Home(pub PathBuf);

impl Home {
    pub fn new() -> Home {
        let path = std::env::temp_dir().join(format!("mycel-invites-{}", PeerId::random()));
        fs::create_dir(&path).unwrap();
        Home(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Gateway {
    pub member: Member,
    pub key: Keypair,
    pub address: String,
}

impl Gateway {
    pub async fn start(owner: &Owner, home: &Home) -> Gateway {
        Gateway::start_with(owner, home, Keypair::generate_ed25519(), quick()).await
    }

    pub async fn start_with(
        owner: &Owner,
        home: &Home,
        key: Keypair,
        settings: Settings,
    ) -> Gateway {
        let joins = Some(home.0.join("joins"));
        let token = owner.token(&key.public().to_peer_id(), 3600);
        let member = owner.start(key.clone(), token, Settings { joins, ..settings });
        let address = member.listen().await;
        Gateway { member, key, address }
    }

    pub fn public(&self) -> Key {
        public(&self.key)
    }
}

pub fn public(key: &Keypair) -> Key {
    key.clone().try_into_ed25519().unwrap().public().to_bytes()
}

pub fn secret(key: &Keypair) -> Vec<u8> {
    key.clone().try_into_ed25519().unwrap().secret().as_ref().to_vec()
}

pub fn terms(serial: u8, gateways: &[(Key, u32)], joins: &[(u32, u32)]) -> Terms {
    Terms {
        serial: [serial; 16],
        gateways: gateways.to_vec(),
        joins: joins.iter().copied().collect::<BTreeMap<_, _>>(),
    }
}

pub fn invite(owner: &Owner, terms: Terms) -> Vec<u8> {
    owner.issue(&Statement { invite: Some(terms), ..owner.grant(3600) })
}

/// A node that has the invite, bound to itself, and nothing else.
pub fn newcomer(owner: &Owner, invite: &[u8]) -> Member {
    newcomer_as(owner, invite, Keypair::generate_ed25519())
}

pub fn newcomer_as(owner: &Owner, invite: &[u8], key: Keypair) -> Member {
    let token = owner.bind(invite, &key.public().to_peer_id());
    owner.start(key, token, quick())
}

pub async fn granted(member: &Member) -> Vec<u8> {
    let token = |event: &Event| match event {
        Event::Admitted { token } => Some(token.clone()),
        _ => None,
    };
    member.wait("the admission", token).await
}

pub async fn refused(member: &Member, address: &str) -> String {
    let (failure, error) = member.dial(address).await.unwrap_err();
    assert_eq!(failure.name(), "not_admitted", "{error}");
    error
}
