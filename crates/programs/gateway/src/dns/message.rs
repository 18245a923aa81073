//! DNS messages (RFC 1035 §4), as far as a forwarder must understand them: the header and the question.
//!
//! A [`DnsQuery`] is a guest's question, a [`DnsOutcome`] is the response code of an answer, and [`DnsData`] is the
//! data of a resource record. An answer from a server is forwarded unchanged if it matches the question; only answers
//! about the switch's own network are made here.

use std::net::IpAddr;

use crate::net::{MAX_LABEL, encoded_name};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 12;
/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;
/// Time to live of answers about the switch's network, in seconds.
const TTL: u32 = 30;
/// The UDP payload size that the gateway's own answers announce (RFC 6891 §6.2.5); 1232 bytes fit into the minimum MTU
/// of IPv6.
const PAYLOAD: u16 = 1232;

/// Types of resource records.
pub mod record {
    /// An IPv4 address.
    pub const A: u16 = 1;
    /// An alias: another name with which to continue the lookup.
    pub const CNAME: u16 = 5;
    /// The name that belongs to an address.
    pub const PTR: u16 = 12;
    /// An IPv6 address.
    pub const AAAA: u16 = 28;
    /// All types, in questions only.
    pub const ANY: u16 = 255;
    /// The pseudo record of EDNS.
    pub const OPT: u16 = 41;
    /// A service binding.
    pub const SVCB: u16 = 64;
    /// A service binding for HTTPS.
    pub const HTTPS: u16 = 65;
}

/// Response codes (RCODE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DnsOutcome {
    /// The name exists (NOERROR).
    Found = 0,
    /// The question is malformed (FORMERR).
    Malformed = 1,
    /// No server has answered (SERVFAIL).
    Failed = 2,
    /// The name does not exist (NXDOMAIN).
    NoName = 3,
    /// The operation is not supported (NOTIMP).
    NotImplemented = 4,
    /// The policy forbids the question (REFUSED).
    Refused = 5,
}

/// A parsed query with one question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DnsQuery<'a> {
    /// The whole message.
    pub bytes: &'a [u8],
    /// The query's ID.
    pub id: u16,
    /// The name in lower case, without the last dot. Bytes that do not occur in host names are replaced by `?`.
    pub name: String,
    /// The record type of the question.
    pub kind: u16,
    /// The class of the question.
    pub class: u16,
    /// Offset in `bytes` at which the question ends.
    pub end: usize,
}

/// The result of parsing a guest's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParsedQuery<'a> {
    /// A valid query.
    Query(DnsQuery<'a>),
    /// A message that is answered with this response code.
    Refused(DnsOutcome),
    /// A message that gets no answer, because it is too short or is itself an answer.
    Nothing,
}

/// Returns the 16 bits at an offset; `None` if they are not within `bytes`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Parses a guest's message.
pub fn parse_query(bytes: &[u8]) -> ParsedQuery<'_> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return ParsedQuery::Nothing };
    let is_answer = header[2] & 0x80 != 0;
    let opcode = header[2] >> 3 & 0xf;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    if is_answer {
        ParsedQuery::Nothing
    } else if opcode != 0 {
        ParsedQuery::Refused(DnsOutcome::NotImplemented)
    } else if questions != 1 {
        ParsedQuery::Refused(DnsOutcome::Malformed)
    } else {
        parse_question(bytes).map_or(ParsedQuery::Refused(DnsOutcome::Malformed), ParsedQuery::Query)
    }
}

fn parse_question(bytes: &[u8]) -> Option<DnsQuery<'_>> {
    let id = word(bytes, 0)?;
    let mut name = String::new();
    let behind = name_end(bytes, HEADER_LEN, |label| {
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|byte| letter(*byte)));
    })?;
    let kind = word(bytes, behind)?;
    let class = word(bytes, behind + 2)?;
    Some(DnsQuery { bytes, id, name, kind, class, end: behind + 4 })
}

fn letter(byte: u8) -> char {
    let known = byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if known { byte.to_ascii_lowercase().into() } else { '?' }
}

/// Calls `label` for each label of the name at `start`. Returns the offset after the name; `None` if the name is
/// malformed. Compression pointers count as malformed, as a question has none.
fn name_end(bytes: &[u8], start: usize, mut label: impl FnMut(&[u8])) -> Option<usize> {
    let mut at = start;
    loop {
        let len = usize::from(*bytes.get(at)?);
        if len > MAX_LABEL || at + 1 + len - start > MAX_NAME {
            return None;
        }
        at += 1;
        if len == 0 {
            return Some(at);
        }
        label(bytes.get(at..at + len)?);
        at += len;
    }
}

impl DnsQuery<'_> {
    /// Returns the bytes of the question section.
    pub fn question(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..self.end]
    }

    /// Returns whether the first record after the question is an EDNS record.
    fn has_edns(&self) -> bool {
        let rest = &self.bytes[self.end..];
        word(self.bytes, 10).is_some_and(|count| count > 0)
            && rest.first() == Some(&0)
            && word(rest, 1) == Some(record::OPT)
    }

    /// Makes an authoritative answer with these records.
    pub fn answer(&self, outcome: DnsOutcome, data: &[DnsData]) -> Vec<u8> {
        self.answer_for(outcome, data, TTL)
    }

    /// As [`DnsQuery::answer`], for records that live for `ttl` seconds.
    pub fn answer_for(&self, outcome: DnsOutcome, data: &[DnsData], ttl: u32) -> Vec<u8> {
        let mut bytes = head(self.bytes, outcome, true);
        bytes.extend_from_slice(self.question());
        let mut count = 0u16;
        for data in data {
            bytes.extend_from_slice(&data.bytes(ttl));
            count += 1;
        }
        bytes[4..6].copy_from_slice(&1u16.to_be_bytes());
        bytes[6..8].copy_from_slice(&count.to_be_bytes());
        if self.has_edns() {
            bytes[11] = 1;
            bytes.extend_from_slice(&[0, 0, record::OPT as u8]);
            bytes.extend_from_slice(&PAYLOAD.to_be_bytes());
            bytes.extend_from_slice(&[0; 6]);
        }
        bytes
    }
}

/// Returns the header of an answer to `query`, without counts.
fn head(query: &[u8], outcome: DnsOutcome, authoritative: bool) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes[..2].copy_from_slice(&query[..2]);
    let asked = query[2] & 0x79;
    bytes[2] = 0x80 | asked | if authoritative { 4 } else { 0 };
    bytes[3] = 0x80 | outcome as u8;
    bytes
}

/// Makes an answer without records, which repeats the question if the question could be parsed. Returns `None` if
/// `query` is shorter than a header.
pub fn refusal(query: &[u8], outcome: DnsOutcome) -> Option<Vec<u8>> {
    let header: &[u8; HEADER_LEN] = query.first_chunk()?;
    let mut bytes = head(header, outcome, false);
    if let Some(question) = parse_question(query).filter(|_| header[4..6] == [0, 1]) {
        bytes[5] = 1;
        bytes.extend_from_slice(question.question());
    }
    Some(bytes)
}

/// The data of a resource record whose name is the name in the question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DnsData {
    /// An address: the record type is A or AAAA.
    Address(IpAddr),
    /// A name: the record type is PTR.
    Name(String),
}

impl DnsData {
    fn bytes(&self, ttl: u32) -> Vec<u8> {
        let (kind, data) = match self {
            Self::Address(IpAddr::V4(address)) => (record::A, address.octets().to_vec()),
            Self::Address(IpAddr::V6(address)) => (record::AAAA, address.octets().to_vec()),
            Self::Name(name) => (record::PTR, encoded_name(name)),
        };
        // The record's name is a compression pointer to the name in the question.
        let mut bytes = vec![0xc0, HEADER_LEN as u8];
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes.extend_from_slice(&ttl.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&data);
        bytes
    }
}

/// Returns whether `answer` answers the message `asked`, whose question ends at `end`: both have the same ID and,
/// ignoring case, the same question. An answer with an error code other than NXDOMAIN may omit the question.
pub fn is_answer(asked: &[u8], end: usize, answer: &[u8]) -> bool {
    let Some(header) = answer.first_chunk::<HEADER_LEN>() else { return false };
    let about_it = asked.get(..2) == Some(&header[..2]) && header[2] & 0x80 != 0;
    let outcome = header[3] & 0xf;
    match u16::from_be_bytes([header[4], header[5]]) {
        0 => about_it && outcome != 0 && outcome != DnsOutcome::NoName as u8,
        1 => {
            let question = answer.get(HEADER_LEN..end).zip(asked.get(HEADER_LEN..end));
            about_it && question.is_some_and(|(got, wanted)| got.eq_ignore_ascii_case(wanted))
        }
        _ => false,
    }
}

/// Returns whether another server should be asked: the response code of `answer` is SERVFAIL, NOTIMP or REFUSED.
pub fn is_no_help(answer: &[u8]) -> bool {
    answer.get(3).is_some_and(|flags| matches!(flags & 0xf, 2 | 4 | 5))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a query for a name.
    pub(crate) fn query_bytes(id: u16, name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        bytes[2] = 1;
        bytes[5] = 1;
        bytes.extend_from_slice(&encoded_name(name));
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes
    }

    fn query(bytes: &[u8]) -> DnsQuery<'_> {
        match parse_query(bytes) {
            ParsedQuery::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_is_read_in_any_case() {
        let bytes = query_bytes(7, "Vm2.LAN", record::A);
        let query = query(&bytes);
        assert_eq!((query.id, query.name.as_str(), query.kind, query.class), (7, "vm2.lan", record::A, 1));
        assert_eq!(query.end, bytes.len());
    }

    #[test]
    fn what_is_no_question_is_refused_or_ignored() {
        let right = query_bytes(7, "vm2.lan", record::A);
        for len in 0..HEADER_LEN {
            assert_eq!(parse_query(&right[..len]), ParsedQuery::Nothing);
        }
        for len in HEADER_LEN..right.len() {
            assert_eq!(parse_query(&right[..len]), ParsedQuery::Refused(DnsOutcome::Malformed), "{len}");
        }
        let spoilt = |at: usize, value: u8| {
            let mut bytes = right.clone();
            bytes[at] = value;
            bytes
        };
        assert_eq!(parse_query(&spoilt(2, 0x80)), ParsedQuery::Nothing, "an answer");
        assert_eq!(parse_query(&spoilt(2, 0x10)), ParsedQuery::Refused(DnsOutcome::NotImplemented), "a status");
        for (at, value) in [(5, 0), (5, 2), (12, 0xc0), (12, 64), (12, 200)] {
            assert_eq!(parse_query(&spoilt(at, value)), ParsedQuery::Refused(DnsOutcome::Malformed), "{at} {value}");
        }
        let long = [&right[..HEADER_LEN], &[[1, b'a']; 128].concat(), &[0, 0, 1, 0, 1]].concat();
        assert_eq!(parse_query(&long), ParsedQuery::Refused(DnsOutcome::Malformed), "a name of 257 bytes");
        let longest = [&right[..HEADER_LEN], &[[1, b'a']; 127].concat(), &[0, 0, 1, 0, 1]].concat();
        assert!(matches!(parse_query(&longest), ParsedQuery::Query(_)));
    }

    #[test]
    fn own_answers_have_the_question_and_edns_if_that_had_it() {
        let mut bytes = query_bytes(7, "Vm2.lan", record::A);
        let plain = query(&bytes).answer(DnsOutcome::Found, &[DnsData::Address([10, 0, 0, 2].into())]);
        assert_eq!(plain[..12], [0, 7, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(plain.ends_with(&[0, 4, 10, 0, 0, 2]) && is_answer(&bytes, bytes.len(), &plain));
        let end = bytes.len();
        bytes.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        bytes[11] = 1;
        let with = query(&bytes).answer(DnsOutcome::NoName, &[]);
        assert_eq!((with[3] & 0xf, with[11], with.len()), (3, 1, end + 11));
    }

    #[test]
    fn only_answers_to_the_question_are_answers() {
        let asked = query_bytes(7, "vM2.lan", record::A);
        let right = refusal(&asked, DnsOutcome::Failed).unwrap();
        assert!(is_answer(&asked, asked.len(), &right));
        let changed = |at: usize, value: u8| {
            let mut bytes = right.clone();
            bytes[at] = value;
            is_answer(&asked, asked.len(), &bytes)
        };
        assert!(changed(14, b'M') && changed(14, b'm'), "any case of letters");
        for (at, value) in [(0, 9), (1, 8), (2, 0), (5, 2), (14, b'x'), (right.len() - 3, 28), (right.len() - 1, 3)] {
            assert!(!changed(at, value), "byte {at}");
        }
        assert!(changed(5, 0), "a refusal without the question");
        for len in 0..right.len() {
            assert!(!is_answer(&asked, asked.len(), &right[..len]), "{len} bytes");
        }
    }
}
