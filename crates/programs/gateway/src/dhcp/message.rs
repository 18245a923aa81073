//! DHCP messages (RFC 2131 §2, RFC 2132), with long options (RFC 3396) and overloaded fields.
//!
//! A [`DhcpMessage`] is what a client has said; a [`DhcpReply`] is what it gets.

use std::net::Ipv4Addr;

use netvale_wire::MacAddr;

/// Bytes of a message before its options, magic cookie included.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// A reply has the length of a BOOTP message at least (RFC 1542 §2.1).
const MIN_REPLY: usize = 300;
/// The longest message that all clients take (RFC 2131 §2).
const MAX_REPLY: usize = 576 - 28;
/// Bytes of options of a message together.
const MAX_OPTIONS: usize = 4096;

/// Numbers of options.
pub mod option {
    /// Subnet mask.
    pub const MASK: u8 = 1;
    /// Router.
    pub const ROUTER: u8 = 3;
    /// Name servers.
    pub const DNS: u8 = 6;
    /// The client's name.
    pub const HOST_NAME: u8 = 12;
    /// Domain.
    pub const DOMAIN: u8 = 15;
    /// MTU of the interface.
    pub const MTU: u8 = 26;
    /// Address of all hosts.
    pub const BROADCAST: u8 = 28;
    /// The address that a client asks for.
    pub const REQUESTED: u8 = 50;
    /// Seconds of a lease.
    pub const LEASE_TIME: u8 = 51;
    /// Which fixed fields hold options.
    pub const OVERLOAD: u8 = 52;
    /// Type of the message.
    pub const TYPE: u8 = 53;
    /// The server that is meant.
    pub const SERVER: u8 = 54;
    /// The options that a client wants.
    pub const PARAMETERS: u8 = 55;
    /// A text.
    pub const MESSAGE: u8 = 56;
    /// Seconds until a client asks its server.
    pub const RENEWAL: u8 = 58;
    /// Seconds until it asks anybody.
    pub const REBINDING: u8 = 59;
    /// The client's identifier.
    pub const CLIENT_ID: u8 = 61;
    /// The client's full name.
    pub const FQDN: u8 = 81;
    /// Domains to search.
    pub const SEARCH: u8 = 119;
}

/// Types of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DhcpKind {
    /// A client looks for servers.
    Discover,
    /// A server offers an address.
    Offer,
    /// A client takes an offer, or asks for its address again.
    Request,
    /// A client has found its address in use.
    Decline,
    /// A server confirms an address.
    Ack,
    /// A server denies one.
    Nak,
    /// A client gives its address back.
    Release,
    /// A client that has an address asks for the rest.
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

/// What a client has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhcpMessage {
    /// Type.
    pub kind: DhcpKind,
    /// Number of the exchange.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// Whether the client can be answered at the address of all hosts only.
    pub broadcast: bool,
    /// The client's present address, or none.
    pub ciaddr: Ipv4Addr,
    /// The client's station.
    pub chaddr: MacAddr,
    /// The address that it asks for.
    pub requested: Option<Ipv4Addr>,
    /// The server that it means.
    pub server: Option<Ipv4Addr>,
    /// Its identifier.
    pub client_id: Option<Vec<u8>>,
    /// Its name.
    pub name: Option<Vec<u8>>,
    /// The options that it wants; none said, all.
    pub wants: Option<Vec<u8>>,
}

/// The options of a message, each joined from its parts.
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

    /// Takes a field's options up to their end. `None` if one runs past the field.
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

    /// Parts of an option follow one another in the order of fields (RFC 3396 §7).
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
    /// Parses a client's message. Requests of relays, of other hardware, and BOOTP's are none.
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
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
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

    /// Who the client is: its station, with its identifier if it has one. The identifier alone would be the same for
    /// clones of one machine, and any guest could say another's.
    pub fn client(&self) -> Vec<u8> {
        [&self.chaddr.0, self.client_id.as_deref().unwrap_or_default()].concat()
    }

    /// Whether the client wants an option.
    pub fn wants(&self, code: u8) -> bool {
        self.wants.as_ref().is_none_or(|wants| wants.contains(&code))
    }
}

fn read_options(fixed: &[u8; FIXED], options: &[u8]) -> Option<JoinedOptions> {
    let mut joined = JoinedOptions::default();
    joined.read(options)?;
    let overload = joined.get(option::OVERLOAD).and_then(|value| value.first().copied()).unwrap_or(0);
    // `file` first, then `sname` (RFC 2131 §4.1).
    if overload & 1 != 0 {
        joined.read(&fixed[108..236])?;
    }
    if overload & 2 != 0 {
        joined.read(&fixed[44..108])?;
    }
    Some(joined)
}

/// The name in option 12, or the first label of that in option 81 (RFC 4702 §2: three bytes, then the name, in DNS's
/// form if bit 2 of the first says so).
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

/// A reply under construction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DhcpReply {
    /// Type.
    pub kind: DhcpKind,
    /// The client's address.
    pub yiaddr: Ipv4Addr,
    /// Options in order.
    pub options: Vec<(u8, Vec<u8>)>,
}

impl DhcpReply {
    /// The bytes of the reply to `message`. Options beyond the longest message are omitted.
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

    /// A client's message in bytes.
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
