//! Members that listen through a gateway.

use mycel_node::{event::Event, node::Command};

use super::Member;

/// The address at which the member is reached through the gateway, or why it is not.
pub async fn reserved(member: &Member, gateway: &Member, address: &str) -> Result<String, String> {
    let (gateway, address) = (gateway.peer, address.parse().unwrap());
    member.node.send(Command::Reserve { gateway, address }).unwrap();
    let told = |event: &Event| match event {
        Event::Reservation { held, error, .. } => Some((*held, error.clone())),
        _ => None,
    };
    match member.take("a reservation", told).await {
        (true, _) => {}
        (false, error) => return Err(error),
    }
    let circuit = |event: &Event| match event {
        Event::Listening { address, .. } if address.contains("p2p-circuit") => {
            Some(address.clone())
        }
        _ => None,
    };
    Ok(member.take("an address through the gateway", circuit).await)
}
