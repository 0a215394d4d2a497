//! Why a connection did not come about: from libp2p's nested errors to four answers.

use std::{error::Error, fmt, io};

use libp2p::{
    Multiaddr, TransportError,
    swarm::{DialError, ListenError},
};

/// What the application concludes from a failed dial differs with these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFailure {
    /// The machine answered that nobody listens there.
    Refused,
    /// Nothing answered in time.
    Silent,
    /// The hello was refused, by them or by us, for the reason of this name.
    NotAdmitted(&'static str),
    Other,
}

impl DialFailure {
    pub fn name(self) -> &'static str {
        match self {
            DialFailure::Refused => "refused",
            DialFailure::Silent => "silent",
            DialFailure::NotAdmitted(_) => "not_admitted",
            DialFailure::Other => "other",
        }
    }

    /// Why the hello was refused: a name of `REASONS`; empty if it was not.
    pub fn refusal(self) -> &'static str {
        match self {
            DialFailure::NotAdmitted(reason) => reason,
            _ => "",
        }
    }
}

/// Reasons of refusals, by their numbers on the wire, from `OTHER_REASON` on. Only ever appended
/// to: both ends may be of any release.
const REASONS: [&str; 20] = [
    "other",
    "version",
    "malformed",
    "swarm",
    "clock",
    "full",
    "duplicate",
    "joins",
    "early",
    "signature",
    "wrong_peer",
    "unbound",
    "delegation",
    "not_admitted",
    "unvouched",
    "used_up",
    "restriction",
    "role",
    "expired",
    "revoked",
];
const OTHER_REASON: u8 = 1;

/// The reason that the other end gave by its number, which may be of a later release.
pub fn reason_of(verdict: u8) -> &'static str {
    let place = usize::from(verdict.saturating_sub(OTHER_REASON));
    REASONS.get(place).copied().unwrap_or(REASONS[0])
}

/// The hello was refused. It travels inside `io::Error`, and is found there again.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// A name of `REASONS`.
    pub kind: &'static str,
    /// A sentence for the other end.
    pub text: String,
    /// The other end refused us.
    pub by_peer: bool,
}

impl Refusal {
    /// Its number on the wire; 0 would mean that nothing is refused.
    pub fn verdict(&self) -> u8 {
        let place = REASONS.iter().position(|reason| *reason == self.kind).unwrap_or(0);
        OTHER_REASON + place as u8
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, refusal)
    }
}

pub fn refusal(kind: &'static str, text: impl Into<String>) -> Refusal {
    Refusal { kind, text: text.into(), by_peer: false }
}

/// Kind and readable reason of a failed dial.
pub fn describe(error: &DialError) -> (DialFailure, String) {
    let DialError::Transport(tries) = error else {
        return (DialFailure::Other, chain(error));
    };
    let kind = tries.iter().map(|(_, error)| classify(error)).next_back();
    let texts = tries.iter().map(|(_, error)| match error {
        TransportError::MultiaddrNotSupported(address) => {
            format!("no transport for the address {address}")
        }
        TransportError::Other(error) => chain(error),
    });
    (kind.unwrap_or(DialFailure::Other), texts.collect::<Vec<_>>().join("; "))
}

/// Where the machine answered that nobody listens.
pub fn refused(error: &DialError) -> Vec<Multiaddr> {
    let DialError::Transport(tries) = error else {
        return vec![];
    };
    let refused = tries.iter().filter(|(_, error)| classify(error) == DialFailure::Refused);
    refused.map(|(address, _)| address.clone()).collect()
}

/// Why somebody who dialled us did not get in: one of a few words, to be counted.
pub fn refusal_kind(error: &ListenError) -> &'static str {
    match error {
        ListenError::Denied { .. } => "too_many",
        ListenError::Transport(error) => match classify(error) {
            DialFailure::NotAdmitted(reason) => refused_as(error, reason),
            DialFailure::Silent => "too_slow",
            DialFailure::Refused | DialFailure::Other => "broken",
        },
        _ => "broken",
    }
}

fn refused_as(error: &TransportError<io::Error>, reason: &'static str) -> &'static str {
    let mut by_peer = false;
    if let TransportError::Other(error) = error {
        walk(error, &mut |cause| {
            by_peer |= cause.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.by_peer);
        });
    }
    if by_peer { "by_peer" } else { reason }
}

fn classify(error: &TransportError<io::Error>) -> DialFailure {
    let TransportError::Other(error) = error else {
        return DialFailure::Other;
    };
    let mut kind = DialFailure::Other;
    walk(error, &mut |cause| {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            kind = DialFailure::NotAdmitted(refusal.kind);
        } else if let Some(io) = cause.downcast_ref::<io::Error>() {
            use io::ErrorKind as K;
            match io.kind() {
                K::ConnectionRefused => kind = DialFailure::Refused,
                K::TimedOut | K::HostUnreachable | K::NetworkUnreachable => {
                    kind = DialFailure::Silent;
                }
                _ => {}
            }
        }
    });
    kind
}

/// Whether somebody else listens on the address that was asked for.
pub fn is_address_in_use(error: &(dyn Error + 'static)) -> bool {
    let mut found = false;
    walk(error, &mut |cause| {
        let io = cause.downcast_ref::<io::Error>();
        found |= io.is_some_and(|io| io.kind() == io::ErrorKind::AddrInUse);
    });
    found
}

/// An error with all its causes; libp2p nests them many levels deep. A refusal of ours speaks
/// for itself: the layers that it came through are of use to nobody who reads it.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut refusal = None;
    walk(error, &mut |cause| {
        if let Some(found) = cause.downcast_ref::<Refusal>() {
            refusal = Some(found.text.clone());
        }
        let own = cause.to_string();
        if text.is_empty() || text.starts_with(DNS_LISTING) {
            text = own;
        } else if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
    });
    refusal.unwrap_or(text)
}

/// How the DNS transport begins what it says of any failed dial; the causes below say the same.
const DNS_LISTING: &str = "Multiple dial errors occurred:";

/// Visits the error and its causes. `source()` of an `io::Error` skips the error that it
/// holds, so that one is visited by `get_ref`.
fn walk(error: &(dyn Error + 'static), visit: &mut dyn FnMut(&(dyn Error + 'static))) {
    const DEEPEST: usize = 32;
    let mut next = Some(error);
    for _ in 0..DEEPEST {
        let Some(error) = next else { return };
        visit(error);
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_found_below_many_wrappers() {
        let wrap = |error: io::Error| {
            let wrapped = io::Error::other(io::Error::other(error));
            classify(&TransportError::Other(wrapped))
        };
        assert_eq!(wrap(io::ErrorKind::ConnectionRefused.into()), DialFailure::Refused);
        assert_eq!(wrap(io::Error::from_raw_os_error(libc::EHOSTUNREACH)), DialFailure::Silent);
        assert_eq!(wrap(io::ErrorKind::TimedOut.into()), DialFailure::Silent);
        assert_eq!(wrap(refusal("role", "no").into()), DialFailure::NotAdmitted("role"));
        assert_eq!(wrap(io::ErrorKind::ConnectionReset.into()), DialFailure::Other);
    }

    #[test]
    fn a_reason_comes_through_as_a_number() {
        for reason in REASONS {
            let verdict = refusal(reason, "").verdict();
            assert_ne!(verdict, 0);
            assert_eq!(reason_of(verdict), reason);
        }
        assert_eq!(reason_of(u8::MAX), "other");
        assert_eq!(refusal("of a later release", "").verdict(), OTHER_REASON);
    }

    #[test]
    fn the_text_names_every_cause_once() {
        let error = io::Error::other(io::Error::other(refusal("expired", "token has expired")));
        assert_eq!(chain(&error), "token has expired");
        let nested = io::Error::other(Layer("a handshake failed", io::ErrorKind::TimedOut.into()));
        assert_eq!(chain(&nested), "a handshake failed: timed out");
    }

    #[test]
    fn the_layers_above_a_refusal_and_listings_of_dials_are_left_out() {
        let refused = refusal("expired", "token has expired").into();
        let error = io::Error::other(Layer("Listen error: Failed to negotiate", refused));
        assert_eq!(chain(&error), "token has expired");
        let listed = "Multiple dial errors occurred:\n - connection refused";
        let error = io::Error::other(Layer(listed, io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(chain(&error), "connection refused");
    }

    #[derive(Debug)]
    struct Layer(&'static str, io::Error);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }
}
