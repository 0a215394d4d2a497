//! What both ends say of themselves in the hello: a capped map of tags.
//!
//! Each entry is a tag of one byte, a length of two, and the value. Unknown tags are passed
//! over, so that versions can mix; a tag that comes twice is refused.
//!
//! ```text
//! 1  token         a biscuit, bound to the sender's peer id
//! 2  wall time     milliseconds since 1970, eight bytes
//! 3  revocations   digest of those that the sender knows, 32 bytes
//! 4  swarm         its name
//! 5  instance      16 bytes that are new with each start of the process
//! 6  granted       from a gateway to a newcomer: the token that it is a member by
//! ```

pub type Instance = [u8; 16];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub token: Vec<u8>,
    pub wall_ms: Option<u64>,
    pub revocations: Option<[u8; 32]>,
    pub swarm: Option<String>,
    pub instance: Option<Instance>,
    pub granted: Option<Vec<u8>>,
}

const TOKEN: u8 = 1;
const WALL: u8 = 2;
const REVOCATIONS: u8 = 3;
const SWARM: u8 = 4;
const INSTANCE: u8 = 5;
const GRANTED: u8 = 6;

impl Hello {
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.token.len() + 128);
        let mut put = |tag: u8, value: &[u8]| {
            block.push(tag);
            block.extend_from_slice(&(value.len() as u16).to_be_bytes());
            block.extend_from_slice(value);
        };
        put(TOKEN, &self.token);
        if let Some(wall) = self.wall_ms {
            put(WALL, &wall.to_be_bytes());
        }
        if let Some(digest) = &self.revocations {
            put(REVOCATIONS, digest);
        }
        if let Some(swarm) = &self.swarm {
            put(SWARM, swarm.as_bytes());
        }
        if let Some(instance) = &self.instance {
            put(INSTANCE, instance);
        }
        if let Some(token) = &self.granted {
            put(GRANTED, token);
        }
        block
    }

    /// Nothing if it is not well-formed.
    pub fn decode(mut block: &[u8]) -> Option<Hello> {
        let mut hello = Hello::default();
        let mut seen = [false; 256];
        while let Some((tag, rest)) = block.split_first() {
            let (length, rest) = rest.split_first_chunk()?;
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            if std::mem::replace(&mut seen[usize::from(*tag)], true) {
                return None;
            }
            match *tag {
                TOKEN => hello.token = value.to_vec(),
                WALL => hello.wall_ms = Some(u64::from_be_bytes(value.try_into().ok()?)),
                REVOCATIONS => hello.revocations = Some(value.try_into().ok()?),
                SWARM => hello.swarm = Some(str::from_utf8(value).ok()?.to_owned()),
                INSTANCE => hello.instance = Some(value.try_into().ok()?),
                GRANTED => hello.granted = Some(value.to_vec()),
                _ => {}
            }
            block = rest;
        }
        Some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Hello {
        Hello {
            token: vec![1, 2, 3],
            wall_ms: Some(12_345),
            revocations: Some([9; 32]),
            swarm: Some("home".into()),
            instance: Some([7; 16]),
            granted: Some(vec![4, 5]),
        }
    }

    #[test]
    fn it_survives_the_way_and_newer_tags() {
        for hello in [full(), Hello::default()] {
            let mut block = hello.encode();
            assert_eq!(Hello::decode(&block), Some(hello.clone()));
            block.extend_from_slice(&[200, 0, 2, 5, 5]);
            assert_eq!(Hello::decode(&block), Some(hello));
        }
    }

    #[test]
    fn what_is_cut_or_twice_is_refused() {
        let block = full().encode();
        let whole = (0..block.len()).filter(|cut| {
            let cut = Hello::decode(&block[..*cut]);
            cut.is_some_and(|hello| hello == full())
        });
        assert_eq!(whole.count(), 0);
        let twice = [full().encode(), vec![SWARM, 0, 1, b'x']].concat();
        assert_eq!(Hello::decode(&twice), None);
        assert_eq!(Hello::decode(&[WALL, 0, 1, 0]), None);
    }
}
