//! DHCP messages (RFC 2131 §2, RFC 2132), with long options (RFC 3396) and overloaded fields.
//!
//! A [`DhcpMessage`] is a message from a client; a [`DhcpReply`] is a message to a client.

use std::net::Ipv4Addr;

use netvale_wire::MacAddr;

/// Length in bytes of the part of a message before its options, including the magic cookie.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Minimum length of a reply in bytes, which is the length of a BOOTP message (RFC 1542 §2.1).
const MIN_REPLY: usize = 300;
/// Length in bytes, without IP and UDP headers, up to which every client must accept a message (RFC 2131 §2).
const MAX_REPLY: usize = 576 - 28;
/// Maximum number of bytes of all options of a message.
const MAX_OPTIONS: usize = 4096;

/// Option codes.
pub mod option {
    /// Subnet mask.
    pub const MASK: u8 = 1;
    /// Default router.
    pub const ROUTER: u8 = 3;
    /// Name servers.
    pub const DNS: u8 = 6;
    /// The client's host name.
    pub const HOST_NAME: u8 = 12;
    /// Domain name.
    pub const DOMAIN: u8 = 15;
    /// MTU of the interface.
    pub const MTU: u8 = 26;
    /// Broadcast address.
    pub const BROADCAST: u8 = 28;
    /// The address that a client requests.
    pub const REQUESTED: u8 = 50;
    /// Duration of a lease, in seconds.
    pub const LEASE_TIME: u8 = 51;
    /// Bits that say whether the fields `file` and `sname` contain options.
    pub const OVERLOAD: u8 = 52;
    /// DHCP message type.
    pub const TYPE: u8 = 53;
    /// The server's identifier: its address.
    pub const SERVER: u8 = 54;
    /// The list of options that a client requests.
    pub const PARAMETERS: u8 = 55;
    /// An error text.
    pub const MESSAGE: u8 = 56;
    /// Seconds until a client renews its lease with its server (T1).
    pub const RENEWAL: u8 = 58;
    /// Seconds until a client asks any server to extend its lease (T2).
    pub const REBINDING: u8 = 59;
    /// The client's identifier.
    pub const CLIENT_ID: u8 = 61;
    /// The client's fully qualified domain name.
    pub const FQDN: u8 = 81;
    /// The domain search list.
    pub const SEARCH: u8 = 119;
}

/// DHCP message types, in the order of their numbers from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DhcpKind {
    /// A client looks for servers.
    Discover,
    /// A server offers an address.
    Offer,
    /// A client accepts an offer, or asks to keep its address.
    Request,
    /// A client has found its address in use.
    Decline,
    /// A server confirms an address.
    Ack,
    /// A server refuses an address.
    Nak,
    /// A client gives its address back.
    Release,
    /// A client that already has an address asks for the other parameters.
    Inform,
}

impl DhcpKind {
    const ALL: [DhcpKind; 8] =
        [Self::Discover, Self::Offer, Self::Request, Self::Decline, Self::Ack, Self::Nak, Self::Release, Self::Inform];

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// A client's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhcpMessage {
    /// DHCP message type.
    pub kind: DhcpKind,
    /// Transaction number, which the reply repeats.
    pub xid: u32,
    /// The broadcast flag: the client can receive a reply only as a broadcast.
    pub broadcast: bool,
    /// The client's current address; 0.0.0.0 if it has none.
    pub ciaddr: Ipv4Addr,
    /// The client's MAC address.
    pub chaddr: MacAddr,
    /// The address that the client requests (option 50); `None` if it requests no particular address.
    pub requested: Option<Ipv4Addr>,
    /// The server for which the message is meant (option 54); `None` if it is meant for any server.
    pub server: Option<Ipv4Addr>,
    /// The client identifier (option 61); `None` if the client sent none.
    pub client_id: Option<Vec<u8>>,
    /// The client's host name (option 12 or 81); `None` if the client sent none.
    pub name: Option<Vec<u8>>,
    /// The codes of the options that the client requests (option 55); `None` means all options.
    pub wants: Option<Vec<u8>>,
}

/// The options of a message. An option that was split (RFC 3396) is one entry.
#[derive(Default)]
struct JoinedOptions {
    list: Vec<(u8, Vec<u8>)>,
    bytes: usize,
}

impl JoinedOptions {
    fn get(&self, code: u8) -> Option<&[u8]> {
        self.list.iter().find(|(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    fn address(&self, code: u8) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(self.get(code)?).ok()?))
    }

    /// Adds the options of a field up to the end option. Returns `None` if an option runs past the field, or all
    /// options together exceed [`MAX_OPTIONS`] bytes.
    fn read(&mut self, mut field: &[u8]) -> Option<()> {
        loop {
            match field {
                [] | [255, ..] => return Some(()),
                [0, rest @ ..] => field = rest,
                [code, len, rest @ ..] => {
                    let (value, behind) = rest.split_at_checked((*len).into())?;
                    self.add(*code, value)?;
                    field = behind;
                }
                [_] => return None,
            }
        }
    }

    /// Adds an option, or a further part of an option (RFC 3396 §7). Returns `None` if the options exceed
    /// [`MAX_OPTIONS`] bytes.
    fn add(&mut self, code: u8, value: &[u8]) -> Option<()> {
        self.bytes += value.len() + 2;
        if self.bytes > MAX_OPTIONS {
            return None;
        }
        match self.list.iter_mut().find(|(known, _)| *known == code) {
            Some((_, joined)) => joined.extend_from_slice(value),
            None => self.list.push((code, value.to_vec())),
        }
        Some(())
    }
}

impl DhcpMessage {
    /// Parses a client's message. Returns `None` if it is malformed, comes from a relay or from hardware other than
    /// Ethernet, or is plain BOOTP.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (fixed, options) = bytes.split_first_chunk::<FIXED>()?;
        let [op, htype, hlen, _, ..] = *fixed;
        let address = |at: usize| Some(Ipv4Addr::from(*fixed[at..].first_chunk::<4>()?));
        if (op, htype, hlen) != (1, 1, 6) || fixed[236..] != COOKIE || !address(24)?.is_unspecified() {
            return None;
        }
        let options = read_options(fixed, options)?;
        let [kind] = options.get(option::TYPE)? else { return None };
        Some(DhcpMessage {
            kind: DhcpKind::of_number(*kind)?,
            xid: u32::from_be_bytes(*fixed[4..].first_chunk()?),
            broadcast: fixed[10] & 0x80 != 0,
            ciaddr: address(12)?,
            chaddr: MacAddr(*fixed[28..].first_chunk()?),
            requested: options.address(option::REQUESTED),
            server: options.address(option::SERVER),
            client_id: options.get(option::CLIENT_ID).filter(|id| id.len() >= 2).map(<[u8]>::to_vec),
            name: name_of(&options),
            wants: options.get(option::PARAMETERS).map(<[u8]>::to_vec),
        })
    }

    /// Returns the key of the client: its MAC address, followed by its identifier if it has one. The identifier alone
    /// is not enough: clones of a machine have the same identifier, and a guest could use another guest's identifier.
    pub fn client(&self) -> Vec<u8> {
        [&self.chaddr.0, self.client_id.as_deref().unwrap_or_default()].concat()
    }

    /// Returns whether the client requests an option.
    pub fn wants(&self, code: u8) -> bool {
        self.wants.as_ref().is_none_or(|wants| wants.contains(&code))
    }
}

fn read_options(fixed: &[u8; FIXED], options: &[u8]) -> Option<JoinedOptions> {
    let mut joined = JoinedOptions::default();
    joined.read(options)?;
    let overload = joined.get(option::OVERLOAD).and_then(|value| value.first().copied()).unwrap_or(0);
    // The options in `file` come before the options in `sname` (RFC 2131 §4.1).
    if overload & 1 != 0 {
        joined.read(&fixed[108..236])?;
    }
    if overload & 2 != 0 {
        joined.read(&fixed[44..108])?;
    }
    Some(joined)
}

/// Returns the name in option 12 or, without that option, in option 81. In option 81, the name follows three bytes (RFC
/// 4702 §2); if bit 2 of the first byte is set, the name is in DNS wire format, and only its first label is returned.
fn name_of(options: &JoinedOptions) -> Option<Vec<u8>> {
    if let Some(name) = options.get(option::HOST_NAME) {
        return Some(name.to_vec());
    }
    let (head, name) = options.get(option::FQDN)?.split_first_chunk::<3>()?;
    if head[0] & 4 != 0 {
        let (len, labels) = name.split_first()?;
        return labels.get(..usize::from(*len)).map(<[u8]>::to_vec);
    }
    Some(name.to_vec())
}

/// A reply to a client's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhcpReply {
    /// DHCP message type.
    pub kind: DhcpKind,
    /// The address that the client gets; 0.0.0.0 if the reply gives none.
    pub yiaddr: Ipv4Addr,
    /// Options, as code and value, in the order in which they are sent.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl DhcpReply {
    /// Encodes the reply to `message`. Options for which a message of the maximum length has no room are omitted.
    pub fn bytes(&self, message: &DhcpMessage) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&[2, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&message.xid.to_be_bytes());
        bytes[10] = if message.broadcast { 0x80 } else { 0 };
        if self.kind == DhcpKind::Ack {
            bytes[12..16].copy_from_slice(&message.ciaddr.octets());
        }
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[28..34].copy_from_slice(&message.chaddr.0);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend_from_slice(&[option::TYPE, 1, self.kind.number()]);
        for (code, value) in &self.options {
            let len = value.len().min(255);
            if bytes.len() + 2 + len < MAX_REPLY {
                bytes.extend_from_slice(&[*code, len as u8]);
                bytes.extend_from_slice(&value[..len]);
            }
        }
        bytes.push(255);
        bytes.resize(bytes.len().max(MIN_REPLY), 0);
        bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a client's message.
    pub(crate) fn client_bytes(kind: DhcpKind, mac: MacAddr, options: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&[1, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&[1, 2, 3, 4]);
        bytes[28..34].copy_from_slice(&mac.0);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend_from_slice(&[option::TYPE, 1, kind.number()]);
        for (code, value) in options {
            bytes.extend_from_slice(&[*code, value.len() as u8]);
            bytes.extend_from_slice(value);
        }
        bytes.push(255);
        bytes
    }

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn a_message_is_read_with_all_that_it_says() {
        let options: [(u8, &[u8]); 5] = [
            (option::REQUESTED, &[10, 0, 0, 9]),
            (option::SERVER, &[10, 0, 0, 1]),
            (option::CLIENT_ID, &[255, 1]),
            (option::HOST_NAME, b"vm"),
            (option::PARAMETERS, &[1, 3]),
        ];
        let message = DhcpMessage::parse(&client_bytes(DhcpKind::Request, MAC, &options)).unwrap();
        assert_eq!((message.kind, message.xid, message.chaddr), (DhcpKind::Request, 0x0102_0304, MAC));
        assert_eq!(message.requested, Some([10, 0, 0, 9].into()));
        assert_eq!((message.client(), message.name.as_deref()), (vec![2, 0, 0, 0, 0, 9, 255, 1], Some(&b"vm"[..])));
        assert!(message.wants(option::ROUTER) && !message.wants(option::DNS));
    }

    #[test]
    fn long_options_are_joined_across_fields() {
        let mut bytes = client_bytes(DhcpKind::Discover, MAC, &[(option::HOST_NAME, b"a"), (option::OVERLOAD, &[3])]);
        bytes[108..112].copy_from_slice(&[option::HOST_NAME, 1, b'b', 255]);
        bytes[44..48].copy_from_slice(&[option::HOST_NAME, 1, b'c', 255]);
        assert_eq!(DhcpMessage::parse(&bytes).unwrap().name.as_deref(), Some(&b"abc"[..]));
    }

    #[test]
    fn full_names_give_their_first_label() {
        let fqdn = |value: &[u8]| {
            let bytes = client_bytes(DhcpKind::Discover, MAC, &[(option::FQDN, value)]);
            DhcpMessage::parse(&bytes).unwrap().name
        };
        assert_eq!(fqdn(b"\x04\0\0\x02vm\x03lan\0").as_deref(), Some(&b"vm"[..]));
        assert_eq!(fqdn(b"\0\0\0vm.lan").as_deref(), Some(&b"vm.lan"[..]));
        assert_eq!(fqdn(b"\x04\0\0\x40vm"), None);
        assert_eq!(fqdn(b"\0"), None);
    }

    #[test]
    fn what_is_no_message_of_a_client_is_ignored() {
        let right = client_bytes(DhcpKind::Discover, MAC, &[]);
        assert!(DhcpMessage::parse(&right).is_some());
        let spoilt = |at: usize, value: u8| {
            let mut bytes = right.clone();
            bytes[at] = value;
            DhcpMessage::parse(&bytes)
        };
        for (at, value) in [(0, 2), (1, 6), (2, 16), (24, 10), (236, 0), (242, 0), (242, 9), (241, 2), (241, 200)] {
            assert_eq!(spoilt(at, value), None, "byte {at}");
        }
        for len in 0..FIXED + 3 {
            assert_eq!(DhcpMessage::parse(&right[..len]), None, "{len} bytes");
        }
        let many: Vec<(u8, &[u8])> = vec![(200, &[7; 255]); 20];
        assert_eq!(DhcpMessage::parse(&client_bytes(DhcpKind::Discover, MAC, &many)), None, "too many options");
    }

    #[test]
    fn a_reply_is_read_as_it_was_meant() {
        let message = DhcpMessage::parse(&client_bytes(DhcpKind::Discover, MAC, &[])).unwrap();
        let long = vec![7; 600];
        let options = vec![(option::SERVER, vec![10, 0, 0, 1]), (200, long), (option::MTU, vec![5, 220])];
        let reply = DhcpReply { kind: DhcpKind::Offer, yiaddr: [10, 0, 0, 9].into(), options };
        let bytes = reply.bytes(&message);
        assert!((MIN_REPLY..=MAX_REPLY).contains(&bytes.len()));
        assert_eq!((bytes[0], &bytes[16..20], &bytes[28..34]), (2, &[10, 0, 0, 9][..], &MAC.0[..]));
        let mut joined = JoinedOptions::default();
        joined.read(&bytes[FIXED..]).unwrap();
        assert_eq!(joined.get(option::TYPE), Some(&[2][..]));
        assert_eq!((joined.get(200).map(<[u8]>::len), joined.get(option::MTU)), (Some(255), Some(&[5, 220][..])));
    }
}
