//! Extracts the addresses in a name server's answer, and follows the chain of aliases to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{HEADER_LEN, record, word};
use crate::resolved::ResolvedAddress;

/// Maximum number of records that are read from an answer; real answers have few.
const MAX_RECORDS: usize = 128;
/// Maximum number of addresses that are taken from an answer.
const MAX_ADDRESSES: usize = 64;
/// Maximum number of aliases that are followed.
const MAX_ALIASES: usize = 16;
/// Maximum number of compression pointers that are followed in one name.
const MAX_JUMPS: usize = 32;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;
/// The DNS class IN.
const INTERNET: u16 = 1;

/// The keys `ipv4hint` and `ipv6hint` among the parameters of a service binding (RFC 9460 §14.3.2).
const HINTS: [u16; 2] = [4, 6];

/// A name without compression, in lower case.
type WireName = Vec<u8>;

struct AnsweredRecord<'a> {
    owner: WireName,
    kind: u16,
    ttl: u32,
    data: &'a [u8],
    /// Offset of the data in the message. It is needed because compressed names in the data refer to offsets in the
    /// message.
    at: usize,
}

/// Returns the addresses in `answer`, a server's answer to a question for records of the type `kind`: the addresses in
/// A, AAAA, HTTPS and SVCB records of that type. A record's owner must be the question's name, or a name to which a
/// chain of aliases in the same answer leads. The time to live of an address is at most the time to live of each alias
/// in the chain.
pub fn addresses(answer: &[u8], kind: u16) -> Vec<ResolvedAddress> {
    let is_found = answer.get(3).is_some_and(|flags| flags & 0xf == 0);
    let Some((asked, records)) = records(answer).filter(|_| is_found) else { return Vec::new() };
    let mut owner = asked;
    let mut ttl = u32::MAX;
    let mut found = Vec::new();
    for _ in 0..=MAX_ALIASES {
        if found.len() >= MAX_ADDRESSES {
            break;
        }
        let own = records.iter().filter(|record| record.owner == owner);
        own.clone().filter(|record| kind == record.kind || kind == record::ANY).for_each(|record| {
            let ttl = record.ttl.min(ttl);
            found.extend(of_record(record).into_iter().map(|address| ResolvedAddress { address, ttl }));
        });
        let Some(alias) = own.clone().find(|record| record.kind == record::CNAME) else { break };
        ttl = ttl.min(alias.ttl);
        let Some((target, _)) = name(answer, alias.at) else { break };
        owner = target;
    }
    found.truncate(MAX_ADDRESSES);
    found
}

/// Returns the question's name, and the records of the answer section up to the first malformed record; `None` if the
/// question is malformed.
fn records(answer: &[u8]) -> Option<(WireName, Vec<AnsweredRecord<'_>>)> {
    let count = usize::from(word(answer, 6)?);
    let (asked, end) = name(answer, HEADER_LEN)?;
    let mut at = end + 4;
    let mut records = Vec::new();
    for _ in 0..count.min(MAX_RECORDS) {
        let Some((record, next)) = record_at(answer, at) else { break };
        at = next;
        records.extend(record);
    }
    Some((asked, records))
}

/// Parses the record at an offset. Returns the record (`None` if its class is not IN) and the offset after the record.
/// If the record is malformed, the result as a whole is `None`.
fn record_at(answer: &[u8], at: usize) -> Option<(Option<AnsweredRecord<'_>>, usize)> {
    let (owner, at) = name(answer, at)?;
    let kind = word(answer, at)?;
    let class = word(answer, at + 2)?;
    let ttl = u32::from(word(answer, at + 4)?) << 16 | u32::from(word(answer, at + 6)?);
    // A time to live with the highest bit set counts as 0 (RFC 2181 §8).
    let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
    let len = usize::from(word(answer, at + 8)?);
    let at = at + 10;
    let data = answer.get(at..at + len)?;
    let record = AnsweredRecord { owner, kind, ttl, data, at };
    Some(((class == INTERNET).then_some(record), at + len))
}

/// Reads the name at an offset, compressed or not. Returns the name and the offset after the name; `None` if the name
/// is malformed.
fn name(message: &[u8], start: usize) -> Option<(WireName, usize)> {
    let mut found = Vec::new();
    let mut at = start;
    let mut end = None;
    let mut jumps = 0;
    loop {
        let len = *message.get(at)?;
        match len >> 6 {
            0 => {
                let label = message.get(at..=at + usize::from(len))?;
                found.extend(label.iter().map(u8::to_ascii_lowercase));
                at += label.len();
                if found.len() > MAX_NAME {
                    return None;
                }
                if len == 0 {
                    return Some((found, end.unwrap_or(at)));
                }
            }
            3 if jumps < MAX_JUMPS => {
                jumps += 1;
                end = end.or(Some(at + 2));
                at = usize::from(word(message, at)? & 0x3fff);
            }
            _ => return None,
        }
    }
}

fn of_record(record: &AnsweredRecord<'_>) -> Vec<IpAddr> {
    match record.kind {
        record::A => v4_addresses(record.data).filter(|_| record.data.len() == 4).collect(),
        record::AAAA => v6_addresses(record.data).filter(|_| record.data.len() == 16).collect(),
        record::HTTPS | record::SVCB => hints(record.data).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the address hints in the data of a service binding (RFC 9460 §2.2: priority, target, parameters); `None` if
/// the data is malformed.
fn hints(data: &[u8]) -> Option<Vec<IpAddr>> {
    let (_, at) = name(data, 2)?;
    let mut rest = data.get(at..)?;
    let mut found = Vec::new();
    while let Some((key, behind)) = rest.split_first_chunk::<2>() {
        let (len, behind) = behind.split_first_chunk::<2>()?;
        let (value, next) = behind.split_at_checked(u16::from_be_bytes(*len).into())?;
        match HINTS.iter().position(|hint| *hint == u16::from_be_bytes(*key)) {
            Some(0) => found.extend(v4_addresses(value)),
            Some(_) => found.extend(v6_addresses(value)),
            None => {}
        }
        rest = next;
    }
    Some(found)
}

fn v4_addresses(bytes: &[u8]) -> impl Iterator<Item = IpAddr> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| Ipv4Addr::from(*bytes).into())
}

fn v6_addresses(bytes: &[u8]) -> impl Iterator<Item = IpAddr> {
    bytes.as_chunks::<16>().0.iter().map(|bytes| Ipv6Addr::from(*bytes).into())
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::query_bytes;
    use super::*;

    /// An answer to a question, to which records are added.
    struct Message(Vec<u8>);

    impl Message {
        fn to(name: &str, kind: u16) -> Self {
            let mut bytes = query_bytes(7, name, kind);
            bytes[2] |= 0x80;
            Message(bytes)
        }

        fn with(mut self, owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Self {
            self.0[7] += 1;
            self.0.extend_from_slice(owner);
            self.0.extend_from_slice(&kind.to_be_bytes());
            self.0.extend_from_slice(&INTERNET.to_be_bytes());
            self.0.extend_from_slice(&ttl.to_be_bytes());
            self.0.extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.0.extend_from_slice(data);
            self
        }

        fn found(&self, kind: u16) -> Vec<String> {
            addresses(&self.0, kind).iter().map(|found| format!("{} {}", found.address, found.ttl)).collect()
        }
    }

    /// A compression pointer to the question's name.
    const ASKED: [u8; 2] = [0xc0, HEADER_LEN as u8];
    const CDN: &[u8] = b"\x03cdn\x04test\0";
    const EDGE: &[u8] = b"\x04eDge\x03cdn\x04test\0";

    #[test]
    fn addresses_of_the_name_and_of_its_aliases_are_found() {
        let plain = Message::to("Example.com", record::A).with(&ASKED, record::A, 300, &[192, 0, 2, 1]).with(
            b"\x07eXample\x03com\0",
            record::A,
            60,
            &[192, 0, 2, 2],
        );
        assert_eq!(plain.found(record::A), ["192.0.2.1 300", "192.0.2.2 60"]);
        let v6 = Ipv6Addr::LOCALHOST.octets();
        let aliases = Message::to("example.com", record::AAAA)
            .with(EDGE, record::AAAA, 900, &v6)
            .with(&ASKED, record::CNAME, 300, CDN)
            .with(CDN, record::CNAME, 20, b"\x04edge\xc0\x3b")
            .with(b"\x05other\x04test\0", record::AAAA, 300, &v6);
        let at = aliases.0.windows(CDN.len()).position(|part| part == CDN).expect("the alias");
        let mut bytes = aliases.0;
        let pointer = bytes.windows(7).position(|part| part == b"\x04edge\xc0\x3b").expect("the pointer");
        bytes[pointer + 6] = at as u8;
        assert_eq!(Message(bytes).found(record::AAAA), ["::1 20"], "for the shortest time on the way");
    }

    #[test]
    fn addresses_of_other_names_types_and_classes_are_not_found() {
        let other = Message::to("example.com", record::A)
            .with(CDN, record::A, 300, &[192, 0, 2, 1])
            .with(&ASKED, record::AAAA, 300, &[0; 16])
            .with(&ASKED, record::A, 300, &[1, 2, 3])
            .with(&ASKED, record::A, 300, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(other.found(record::A).is_empty());
        let mut chaos = Message::to("example.com", record::A).with(&ASKED, record::A, 300, &[192, 0, 2, 1]);
        let class = chaos.0.len() - 11;
        chaos.0[class] = 3;
        assert!(chaos.found(record::A).is_empty());
        let mut missing = Message::to("example.com", record::A).with(&ASKED, record::A, 300, &[192, 0, 2, 1]);
        missing.0[3] = 3;
        assert!(missing.found(record::A).is_empty(), "there is no such name");
        let all = Message::to("example.com", record::ANY).with(&ASKED, record::A, u32::MAX, &[192, 0, 2, 1]);
        assert_eq!(all.found(record::ANY), ["192.0.2.1 0"]);
    }

    #[test]
    fn hints_of_service_bindings_are_addresses_of_the_name() {
        let data = [
            &[0, 1, 0][..],
            &[0, 1, 0, 3, 2, b'h', b'2'],
            &[0, 4, 0, 8, 192, 0, 2, 1, 192, 0, 2, 2],
            &[0, 6, 0, 16],
            &Ipv6Addr::LOCALHOST.octets(),
        ]
        .concat();
        let answer = Message::to("example.com", record::HTTPS).with(&ASKED, record::HTTPS, 30, &data);
        assert_eq!(answer.found(record::HTTPS), ["192.0.2.1 30", "192.0.2.2 30", "::1 30"]);
        assert!(answer.found(record::SVCB).is_empty());
        for len in 0..data.len() {
            let cut = Message::to("example.com", record::HTTPS).with(&ASKED, record::HTTPS, 30, &data[..len]);
            assert!(cut.found(record::HTTPS).len() < 3, "{len}");
        }
    }

    #[test]
    fn loops_and_spoilt_answers_come_to_an_end() {
        let looped = Message::to("example.com", record::A).with(&ASKED, record::CNAME, 1, &ASKED);
        assert!(looped.found(record::A).is_empty());
        let mut own = query_bytes(7, "example.com", record::A);
        own.splice(HEADER_LEN.., ASKED);
        assert!(addresses(&own, record::A).is_empty(), "a pointer to itself");
        let right = Message::to("example.com", record::A).with(&ASKED, record::CNAME, 300, CDN).with(
            CDN,
            record::A,
            300,
            &[192, 0, 2, 1],
        );
        for at in 0..right.0.len() {
            for value in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
                let mut spoilt = right.0.clone();
                spoilt[at] = value;
                assert!(addresses(&spoilt, record::A).len() <= 1);
                assert!(addresses(&spoilt[..at], record::A).is_empty());
            }
        }
    }
}
