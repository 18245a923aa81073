//! DHCPv6 messages (RFC 8415 §8, §21): parses a client's [`Dhcp6Message`], and encodes a [`Dhcp6Reply`].
//!
//! An *identity association* ([`AskedIdentity`] in a message, [`GivenIdentity`] in a reply) is a client's request for
//! addresses; the client gives each association a number. DUIDs, by which clients and servers identify themselves, are
//! opaque bytes.

use std::net::Ipv6Addr;

/// Codes of options.
pub mod option {
    /// DUID of the client.
    pub const CLIENT_ID: u16 = 1;
    /// DUID of the server.
    pub const SERVER_ID: u16 = 2;
    /// Identity association for addresses that are not temporary.
    pub const IA_NA: u16 = 3;
    /// Identity association for temporary addresses.
    pub const IA_TA: u16 = 4;
    /// Address in an identity association.
    pub const ADDRESS: u16 = 5;
    /// Codes of the options that the client wants.
    pub const REQUESTED: u16 = 6;
    /// Preference of the server.
    pub const PREFERENCE: u16 = 7;
    /// Status code.
    pub const STATUS: u16 = 13;
    /// Rapid commit: the client gets a lease with two messages instead of four.
    pub const RAPID_COMMIT: u16 = 14;
    /// Name servers (RFC 3646).
    pub const DNS: u16 = 23;
    /// Domains in which clients look for short names (RFC 3646).
    pub const DOMAINS: u16 = 24;
    /// Identity association for prefixes.
    pub const IA_PD: u16 = 25;
    /// Time after which a client without leases must request the settings again.
    pub const REFRESH_TIME: u16 = 32;
}

/// Minimum and maximum length of a DUID in bytes (RFC 8415 §11.1).
const DUID_LEN: std::ops::RangeInclusive<usize> = 3..=130;
/// Maximum number of identity associations in a message, and maximum number of addresses in an identity association;
/// further ones are ignored.
pub const MOST: usize = 8;

/// The types of messages that clients send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dhcp6Kind {
    /// Looks for servers.
    Solicit,
    /// Requests the addresses of a server's offer.
    Request,
    /// Asks whether its addresses are on this network.
    Confirm,
    /// Extends leases at the server that gave them.
    Renew,
    /// Extends leases at any server.
    Rebind,
    /// Ends leases.
    Release,
    /// Returns addresses that another station uses.
    Decline,
    /// Requests settings without addresses.
    InformationRequest,
}

impl Dhcp6Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Solicit,
            3 => Self::Request,
            4 => Self::Confirm,
            5 => Self::Renew,
            6 => Self::Rebind,
            8 => Self::Release,
            9 => Self::Decline,
            11 => Self::InformationRequest,
            _ => return None,
        })
    }
}

/// An identity association in a client's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedIdentity {
    /// The client's number of the association (IAID).
    pub id: u32,
    /// The addresses in it.
    pub addresses: Vec<Ipv6Addr>,
}

/// A client's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dhcp6Message {
    /// The type.
    pub kind: Dhcp6Kind,
    /// The transaction ID, which the reply repeats.
    pub transaction: [u8; 3],
    /// The client's DUID; `None` if the message has none.
    pub client: Option<Vec<u8>>,
    /// The DUID of the server for which the message is meant; `None` if it is meant for any server.
    pub server: Option<Vec<u8>>,
    /// The identity associations for addresses.
    pub identities: Vec<AskedIdentity>,
    /// Whether there is an identity association of any kind: for addresses, temporary addresses or prefixes.
    pub has_identity: bool,
    /// Whether the client accepts a lease in place of an offer (rapid commit).
    pub rapid: bool,
    /// The codes of the options that the client wants; `None` if the message has no such list, which means that the
    /// client wants all options.
    pub requested: Option<Vec<u16>>,
}

impl Dhcp6Message {
    /// Parses a client's message. Returns `None` if the message is malformed, or comes from a server or a relay.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(4)?;
        let mut message = Dhcp6Message {
            kind: Dhcp6Kind::of(head[0])?,
            transaction: [head[1], head[2], head[3]],
            client: None,
            server: None,
            identities: Vec::new(),
            has_identity: false,
            rapid: false,
            requested: None,
        };
        for (code, data) in options(rest)? {
            message.take(code, data)?;
        }
        Some(message)
    }

    fn take(&mut self, code: u16, data: &[u8]) -> Option<()> {
        match code {
            option::CLIENT_ID => set_once(&mut self.client, duid(data)?)?,
            option::SERVER_ID => set_once(&mut self.server, duid(data)?)?,
            option::IA_NA => {
                self.has_identity = true;
                let identity = identity(data)?;
                // A second association with the same number would refer to the same lease, so it is ignored.
                if self.identities.len() < MOST && self.identities.iter().all(|known| known.id != identity.id) {
                    self.identities.push(identity);
                }
            }
            option::IA_TA | option::IA_PD => self.has_identity = true,
            option::RAPID_COMMIT => self.rapid = true,
            option::REQUESTED => {
                let (codes, []) = data.as_chunks::<2>() else { return None };
                set_once(&mut self.requested, codes.iter().map(|code| u16::from_be_bytes(*code)).collect())?;
            }
            _ => {}
        }
        Some(())
    }

    /// Returns whether the client wants an option.
    pub fn wants(&self, code: u16) -> bool {
        self.requested.as_ref().is_none_or(|codes| codes.contains(&code))
    }
}

/// Sets a value that may occur only once. Returns `None` if it was set before.
fn set_once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn duid(data: &[u8]) -> Option<Vec<u8>> {
    DUID_LEN.contains(&data.len()).then(|| data.to_vec())
}

/// Parses an identity association: its number, the times T1 and T2, and options with addresses. Returns `None` if it is
/// malformed.
fn identity(data: &[u8]) -> Option<AskedIdentity> {
    let (id, rest) = data.split_first_chunk::<4>()?;
    let mut addresses = Vec::new();
    for (code, data) in options(rest.get(8..)?)? {
        if code == option::ADDRESS {
            let (address, rest) = data.split_first_chunk::<16>()?;
            // Two lifetimes and further options follow. They are ignored, but must be well-formed.
            options(rest.get(8..)?)?;
            if addresses.len() < MOST {
                addresses.push(Ipv6Addr::from(*address));
            }
        }
    }
    Some(AskedIdentity { id: u32::from_be_bytes(*id), addresses })
}

/// Splits options into codes and contents. Returns `None` if the last option is cut off.
fn options(mut bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (code, rest) = bytes.split_first_chunk::<2>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (data, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        all.push((u16::from_be_bytes(*code), data));
        bytes = rest;
    }
    Some(all)
}

/// Status codes (RFC 8415 §21.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Dhcp6Status {
    /// The request is fulfilled.
    Success = 0,
    /// There is no address for the identity association.
    NoAddress = 2,
    /// The client has no lease with this number.
    NoBinding = 3,
    /// An address does not belong to this network.
    NotOnLink = 4,
    /// The client must send to the multicast group of all servers.
    UseMulticast = 5,
}

impl Dhcp6Status {
    fn bytes(self) -> Vec<u8> {
        let text: &[u8] = match self {
            Self::Success => b"",
            Self::NoAddress => b"no address is free",
            Self::NoBinding => b"no such lease",
            Self::NotOnLink => b"not an address of this network",
            Self::UseMulticast => b"send to ff02::1:2",
        };
        [&(self as u16).to_be_bytes(), text].concat()
    }
}

/// An address in a reply, with its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasedAddress {
    /// The address.
    pub address: Ipv6Addr,
    /// The preferred lifetime and the valid lifetime, which are equal, in seconds; 0 if the client must stop using the
    /// address.
    pub seconds: u32,
}

/// An identity association in a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenIdentity {
    /// The client's number of the association.
    pub id: u32,
    /// The addresses in it.
    pub addresses: Vec<LeasedAddress>,
    /// The status of the identity association; `None` if there is nothing to report.
    pub status: Option<Dhcp6Status>,
}

impl GivenIdentity {
    fn bytes(&self) -> Vec<u8> {
        let shortest = self.addresses.iter().map(|given| given.seconds).filter(|seconds| *seconds > 0).min();
        let seconds = shortest.unwrap_or(0);
        let mut bytes = self.id.to_be_bytes().to_vec();
        // T1 and T2: the times until the client renews and rebinds (RFC 8415 §21.4).
        bytes.extend_from_slice(&(seconds / 2).to_be_bytes());
        bytes.extend_from_slice(&((u64::from(seconds) * 4 / 5) as u32).to_be_bytes());
        for LeasedAddress { address, seconds } in &self.addresses {
            let data = [&address.octets()[..], &seconds.to_be_bytes(), &seconds.to_be_bytes()].concat();
            add(&mut bytes, option::ADDRESS, &data);
        }
        if let Some(status) = self.status {
            add(&mut bytes, option::STATUS, &status.bytes());
        }
        bytes
    }
}

/// The types of messages that servers send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Dhcp6ReplyKind {
    /// An offer of addresses, in answer to a SOLICIT.
    Advertise = 2,
    /// The answer to any other message, or to a SOLICIT with rapid commit.
    Reply = 7,
}

/// A server's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dhcp6Reply {
    /// The type.
    pub kind: Dhcp6ReplyKind,
    /// The options with their contents, except the identity associations, which are in [`Dhcp6Reply::identities`].
    pub options: Vec<(u16, Vec<u8>)>,
    /// The identity associations.
    pub identities: Vec<GivenIdentity>,
}

impl Dhcp6Reply {
    /// Adds a status that applies to the whole message.
    pub fn status(mut self, status: Dhcp6Status) -> Self {
        self.options.push((option::STATUS, status.bytes()));
        self
    }

    /// Encodes the reply to a message.
    pub fn bytes(&self, message: &Dhcp6Message) -> Vec<u8> {
        let mut bytes = [&[self.kind as u8][..], &message.transaction].concat();
        self.options.iter().for_each(|(code, data)| add(&mut bytes, *code, data));
        self.identities.iter().for_each(|identity| add(&mut bytes, option::IA_NA, &identity.bytes()));
        bytes
    }
}

/// Adds an option; omits it if its content is too long.
fn add(bytes: &mut Vec<u8>, code: u16, data: &[u8]) {
    if let Ok(len) = u16::try_from(data.len()) {
        bytes.extend_from_slice(&code.to_be_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(data);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a client's message with options.
    pub(crate) fn client_bytes(kind: u8, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![kind, 1, 2, 3];
        options.iter().for_each(|(code, data)| add(&mut bytes, *code, data));
        bytes
    }

    /// Encodes the contents of an identity association.
    pub(crate) fn identity_bytes(id: u32, addresses: &[Ipv6Addr]) -> Vec<u8> {
        let given = addresses.iter().map(|address| LeasedAddress { address: *address, seconds: 0 });
        GivenIdentity { id, addresses: given.collect(), status: None }.bytes()
    }

    const DUID: &[u8] = &[0, 1, 9, 9];

    #[test]
    fn a_message_has_its_options() {
        let address: Ipv6Addr = "fd00::1000".parse().unwrap();
        let identity = identity_bytes(7, &[address]);
        let bytes = client_bytes(
            1,
            &[(1, DUID), (3, &identity), (3, &identity), (6, &[0, 23, 0, 24]), (14, &[]), (8, &[0, 0]), (999, &[1])],
        );
        let message = Dhcp6Message::parse(&bytes).unwrap();
        assert_eq!((message.kind, message.transaction), (Dhcp6Kind::Solicit, [1, 2, 3]));
        assert_eq!((message.client.as_deref(), message.server.as_deref()), (Some(DUID), None));
        assert_eq!(message.identities, [AskedIdentity { id: 7, addresses: vec![address] }]);
        assert!(message.rapid && message.has_identity && message.wants(23) && !message.wants(32));
        assert!(Dhcp6Message::parse(&client_bytes(11, &[])).unwrap().wants(32));
    }

    #[test]
    fn messages_of_others_and_malformed_ones_are_refused() {
        for kind in [0, 2, 7, 10, 12, 13, 14, 255] {
            assert_eq!(Dhcp6Message::parse(&client_bytes(kind, &[(1, DUID)])), None, "{kind}");
        }
        let short_address = [&identity_bytes(7, &[])[..], &[0, 5, 0, 4, 1, 2, 3, 4]].concat();
        let nested = [&identity_bytes(7, &["fd00::1".parse().unwrap()])[..], &[0, 13, 0, 9]].concat();
        for options in [
            &[(1, DUID), (1, DUID)][..],
            &[(2, DUID), (2, DUID)],
            &[(1, &[0, 1][..])],
            &[(1, &[7; 131])],
            &[(3, &[0; 11])],
            &[(3, &short_address)],
            &[(3, &nested)],
            &[(6, &[0])],
        ] {
            assert_eq!(Dhcp6Message::parse(&client_bytes(1, options)), None, "{options:?}");
        }
        let whole = client_bytes(1, &[(1, DUID), (3, &identity_bytes(7, &["fd00::1".parse().unwrap()]))]);
        for len in (0..whole.len()).filter(|len| ![4, 12].contains(len)) {
            assert_eq!(Dhcp6Message::parse(&whole[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn what_a_message_can_ask_for_is_bounded() {
        let address = identity_bytes(0, &[Ipv6Addr::LOCALHOST; 20]);
        let identities: Vec<_> = (0..50u32).map(|id| [&id.to_be_bytes()[..], &address[4..]].concat()).collect();
        let options: Vec<_> = identities.iter().map(|data| (3, &data[..])).collect();
        let message = Dhcp6Message::parse(&client_bytes(1, &options)).unwrap();
        assert_eq!(message.identities.len(), MOST);
        assert!(message.identities.iter().all(|identity| identity.addresses.len() == MOST));
    }

    #[test]
    fn a_reply_has_times_of_its_shortest_lease() {
        let given =
            |last: u16, seconds| LeasedAddress { address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last), seconds };
        let identity = GivenIdentity { id: 7, addresses: vec![given(9, 1000), given(8, 0)], status: None };
        let bytes = identity.bytes();
        assert_eq!(bytes[..12], [0, 0, 0, 7, 0, 0, 1, 244, 0, 0, 3, 32]);
        assert_eq!(bytes[12..16], [0, 5, 0, 24]);
        assert_eq!(bytes[32..40], [0, 0, 3, 232, 0, 0, 3, 232]);
        let status = GivenIdentity { id: 7, addresses: Vec::new(), status: Some(Dhcp6Status::NoBinding) };
        assert_eq!(status.bytes()[12..18], [0, 13, 0, 15, 0, 3]);
    }
}
