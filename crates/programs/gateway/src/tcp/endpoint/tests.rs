//! Tests of an endpoint against a guest whose segments the test chooses.

use std::time::Duration;

use netvale_wire::tcp::{FIN, PSH, SYN};

use super::super::seq::TcpSeq;
use super::*;

const MSS: u16 = 1000;
const FIRST: TcpSeq = TcpSeq(u32::MAX - 2);

/// A segment from the guest.
#[derive(Clone, Copy)]
struct Said<'a> {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    payload: &'a [u8],
}

impl<'a> Said<'a> {
    fn segment(self) -> TcpSegment<'a> {
        let syn = self.flags & SYN != 0;
        TcpSegment {
            src_port: 1,
            dst_port: 2,
            seq: TcpSeq(self.seq),
            ack: TcpSeq(self.ack),
            flags: self.flags,
            window: self.window,
            mss: syn.then_some(MSS),
            scale: syn.then_some(0),
            payload: self.payload,
        }
    }
}

/// An endpoint, its time, and the payload that it has returned.
struct TestConnection {
    end: TcpEndpoint,
    now: Instant,
    got: Vec<u8>,
}

/// Returns the acknowledgement number for our SYN and `count` bytes.
fn ours(count: u32) -> u32 {
    FIRST.plus(1 + count).0
}

fn said(seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Said<'_> {
    Said { seq, ack, flags, window: 50_000, payload }
}

impl TestConnection {
    /// Returns a connection after the guest's SYN, whose sequence number is 999.
    fn new() -> Self {
        let now = Instant::now();
        let syn = said(999, 0, SYN, b"");
        TestConnection { end: TcpEndpoint::answering(&syn.segment(), FIRST, 1460, now), now, got: Vec::new() }
    }

    fn open() -> Self {
        let mut connection = Self::new();
        connection.end.connected();
        assert_eq!(connection.sent().len(), 1);
        assert!(connection.hear(said(1000, ours(0), ACK, b"")).opened);
        connection
    }

    fn hear<'a>(&mut self, said: Said<'a>) -> TcpHeard<'a> {
        let heard = self.end.hear(&said.segment(), self.now);
        self.got.extend_from_slice(heard.data);
        heard
    }

    fn sent(&mut self) -> Vec<SegmentOut> {
        let all: Vec<_> = std::iter::from_fn(|| self.end.next_segment(self.now)).take(1000).collect();
        assert!(all.len() < 1000, "it never ends");
        all
    }

    /// Takes all segments that are due. Returns the lengths of their payloads.
    fn lengths(&mut self) -> Vec<usize> {
        self.sent().iter().map(|segment| segment.data.len()).collect()
    }

    fn pass(&mut self, time: Duration) -> bool {
        self.now += time;
        self.end.on_time(self.now)
    }
}

#[test]
fn a_syn_is_answered_when_the_host_is_connected() {
    let mut connection = TestConnection::new();
    assert_eq!(connection.sent(), []);
    connection.hear(said(999, 0, SYN, b""));
    assert_eq!(connection.sent(), [], "again, it is not answered either");
    connection.end.connected();
    let answer = &connection.sent()[..];
    let [answer] = answer else { panic!("one segment") };
    assert_eq!((answer.flags, answer.seq, answer.ack), (SYN | ACK, FIRST, TcpSeq(1000)));
    assert_eq!(answer.syn.map(|syn| (syn.mss, syn.scale)), Some((MSS, Some(SCALE))));
    connection.hear(said(999, 0, SYN, b""));
    assert_eq!(connection.sent().len(), 1, "the answer was lost");
    assert!(connection.hear(said(1000, ours(0), ACK, b"hi")).opened);
    assert_eq!((connection.got.as_slice(), connection.end.state()), (&b"hi"[..], TcpState::Open));
}

#[test]
fn a_refused_syn_is_reset_and_a_guest_may_give_up() {
    let mut connection = TestConnection::new();
    let reset = connection.end.reset().unwrap();
    assert_eq!((reset.flags, reset.seq, reset.ack), (RST | ACK, TcpSeq(0), TcpSeq(1000)));
    let mut connection = TestConnection::new();
    assert!(connection.hear(said(1000, 0, RST, b"")).reset);
    let mut connection = TestConnection::new();
    connection.hear(said(5000, 0, SYN, b""));
    connection.end.connected();
    assert_eq!(connection.sent()[0].ack, TcpSeq(5001), "it has begun anew");
}

#[test]
fn an_answer_that_nobody_acknowledges_is_sent_again_and_given_up() {
    let mut connection = TestConnection::new();
    connection.end.connected();
    assert_eq!(connection.sent().len(), 1);
    let mut times = 1;
    while !connection.pass(Duration::from_secs(60)) {
        times += connection.sent().len();
    }
    assert_eq!(times, 7);
}

#[test]
fn what_comes_in_order_is_given_once_and_acknowledged() {
    let mut connection = TestConnection::open();
    connection.hear(said(1000, ours(0), ACK, b"abc"));
    connection.hear(said(1003, ours(0), ACK | PSH, b"def"));
    let sent = connection.sent();
    assert_eq!((sent.len(), sent[0].ack), (1, TcpSeq(1006)), "one acknowledgement for both");
    connection.hear(said(1000, ours(0), ACK, b"abcdefgh"));
    connection.hear(said(1002, ours(0), ACK, b"cd"));
    assert_eq!(connection.got, b"abcdefgh");
    assert_eq!(connection.sent()[0].ack, TcpSeq(1008));
}

#[test]
fn what_is_out_of_order_is_told_of_each_time() {
    let mut connection = TestConnection::open();
    for n in 1..=3 {
        connection.hear(said(1000 + n * 10, ours(0), ACK, b"0123456789"));
    }
    let sent = connection.sent();
    assert!(sent.len() >= 3 && sent.iter().all(|segment| segment.ack == TcpSeq(1000)));
    assert_eq!(connection.got, b"");
}

#[test]
fn what_is_beyond_the_window_is_not_taken() {
    let mut connection = TestConnection::open();
    connection.end.set_waiting(ROOM as usize - 10, usize::MAX);
    let _ = connection.sent();
    // The window that was offered earlier still applies.
    let long = vec![7; 65_535 + 10];
    connection.hear(said(1000, ours(0), ACK, &long));
    assert_eq!(connection.got.len(), 65_535);
    connection.end.set_waiting(ROOM as usize, usize::MAX);
    connection.hear(said(1000 + 65_535, ours(0), ACK, b"probe"));
    let sent = connection.sent();
    assert_eq!((sent[0].window, connection.got.len()), (0, 65_535));
    connection.end.set_waiting(0, usize::MAX);
    let sent = connection.sent();
    assert_eq!(u32::from(sent[0].window) << SCALE, ROOM, "the guest is told that it opens");
}

/// Objective: the window is as large as the number of bytes that may wait, but at least two segments; the guest gets an
/// update when a closed window opens, and must retransmit the bytes that the caller did not take.
#[test]
fn a_window_is_as_large_as_what_may_wait() {
    let mut connection = TestConnection::open();
    let window =
        |connection: &mut TestConnection| connection.sent().last().map(|segment| u32::from(segment.window) << SCALE);
    connection.hear(said(1000, ours(0), ACK, &[7; 65_535]));
    connection.end.set_waiting(65_535, 70_000);
    assert_eq!(window(&mut connection), Some(4464 >> SCALE << SCALE));
    connection.end.set_waiting(0, 0);
    connection.hear(said(1000 + 65_535, ours(0), ACK, &[7; 4464]));
    connection.end.set_waiting(4464, 0);
    assert_eq!(window(&mut connection), Some(0));
    connection.end.set_waiting(0, 0);
    assert_eq!(window(&mut connection), Some(2 * u32::from(MSS)));
    connection.end.set_most_taken(5);
    connection.hear(said(1000 + 69_999, ours(0), ACK, b"1234567"));
    assert_eq!((connection.got.len(), connection.sent()[0].ack), (70_004, TcpSeq(1000 + 70_004)));
}

#[test]
fn bytes_from_the_host_go_as_far_as_the_guest_has_room() {
    let mut connection = TestConnection::open();
    connection.end.push(vec![1; 40_000]);
    assert_eq!(connection.lengths(), [16_000], "the first window of congestion");
    connection.hear(said(1000, ours(16_000), ACK, b""));
    assert_eq!(connection.lengths(), [24_000]);
    connection.hear(Said { window: 500, ..said(1000, ours(40_000), ACK, b"") });
    connection.end.push(vec![1; 2000]);
    assert_eq!(connection.lengths(), [500]);
    assert_eq!(connection.end.queued(), 2000);
}

#[test]
fn segments_are_whole_while_more_can_follow() {
    let mut connection = TestConnection::open();
    connection.end.push(vec![1; 15_500]);
    assert_eq!(connection.lengths(), [15_500], "all there is");
    connection.end.push(vec![1; 900]);
    assert_eq!(connection.lengths(), [0; 0], "half a segment waits for room");
    connection.hear(said(1000, ours(1000), ACK, b""));
    assert_eq!(connection.lengths(), [900]);
}

#[test]
fn three_acknowledgements_of_the_same_bring_the_first_bytes_again() {
    let mut connection = TestConnection::open();
    connection.end.push(vec![1; 10_000]);
    let _ = connection.sent();
    for _ in 0..2 {
        connection.hear(said(1000, ours(1000), ACK, b""));
        assert_eq!(connection.sent(), []);
    }
    connection.hear(said(1000, ours(1000), ACK, b""));
    connection.hear(said(1000, ours(1000), ACK, b""));
    let sent = connection.sent();
    assert_eq!((sent[0].seq.0, sent[0].data.clone()), (ours(1000), 0..1000));
    connection.hear(said(1000, ours(4000), ACK, b""));
    let sent = connection.sent();
    assert_eq!((sent[0].seq.0, sent[0].data.clone()), (ours(4000), 0..1000), "the next gap");
    connection.hear(said(1000, ours(10_000), ACK, b""));
    assert_eq!((connection.sent(), connection.end.queued()), (vec![], 0));
}

#[test]
fn what_nobody_acknowledges_is_sent_again_slowly_and_given_up() {
    let mut connection = TestConnection::open();
    connection.end.push(vec![1; 5000]);
    connection.end.end();
    let sent = connection.sent();
    assert_eq!((sent[0].data.len(), sent[0].flags & FIN), (5000, FIN));
    connection.pass(Duration::from_secs(2));
    assert_eq!(connection.lengths(), [1000], "one segment");
    connection.hear(said(1000, ours(1000), ACK, b""));
    let sent = connection.sent();
    assert_eq!(sent.iter().map(|segment| segment.data.len()).sum::<usize>(), 2000);
    connection.hear(said(1000, ours(5000), ACK, b""));
    let sent = connection.sent();
    assert_eq!((sent[0].data.len(), sent[0].flags & FIN), (0, FIN), "the end is what is missing");
    let mut silent = 0;
    while !connection.pass(Duration::from_secs(60)) {
        silent += 1;
        let _ = connection.sent();
    }
    assert_eq!(silent, TRIES);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut connection = TestConnection::open();
    connection.hear(Said { window: 0, ..said(1000, ours(0), ACK, b"") });
    connection.end.push(b"abc".to_vec());
    assert_eq!(connection.sent(), []);
    for _ in 0..30 {
        assert!(!connection.pass(Duration::from_secs(60)));
        assert_eq!(connection.lengths(), [1]);
        connection.hear(Said { window: 0, ..said(1000, ours(0), ACK, b"") });
        assert_eq!(connection.sent(), []);
    }
    connection.hear(said(1000, ours(0), ACK, b""));
    assert!(!connection.pass(Duration::from_secs(60)));
    assert_eq!(connection.lengths(), [3]);
}

#[test]
fn each_direction_ends_for_itself() {
    let mut connection = TestConnection::open();
    connection.hear(said(1000, ours(0), ACK | FIN, b"last"));
    assert!(connection.end.has_guest_ended() && !connection.end.is_done());
    assert_eq!(connection.sent()[0].ack, TcpSeq(1005));
    connection.end.push(b"answer".to_vec());
    assert_eq!(connection.lengths(), [6], "the other one goes on");
    connection.hear(said(1004, ours(6), ACK | FIN, b""));
    assert_eq!(connection.sent()[0].ack, TcpSeq(1005), "the end again");
    connection.end.end();
    assert_eq!(connection.sent()[0].flags & FIN, FIN);
    connection.hear(said(1005, ours(7), ACK, b""));
    assert!(connection.end.is_done());
    assert_eq!(connection.got, b"last");
}

#[test]
fn only_the_right_number_resets() {
    let mut connection = TestConnection::open();
    assert!(!connection.hear(said(1001, 0, RST, b"")).reset);
    assert_eq!(connection.sent().len(), 1, "a challenge");
    assert!(!connection.hear(said(900, 0, RST, b"")).reset);
    assert_eq!(connection.sent().len(), 0);
    assert!(!connection.hear(said(1000, 0, SYN, b"")).reset);
    assert_eq!(connection.sent().len(), 1, "a challenge");
    assert!(connection.hear(said(1000, 0, RST, b"")).reset);
    assert!(connection.hear(said(1000, ours(0), ACK, b"x")).refusal.is_some());
}

#[test]
fn acknowledgements_of_what_was_not_sent_are_no_acknowledgements() {
    let mut connection = TestConnection::open();
    connection.end.push(b"abc".to_vec());
    let _ = connection.sent();
    connection.hear(said(1000, ours(4), ACK, b""));
    assert_eq!((connection.end.queued(), connection.sent().len()), (3, 1));
    let mut half = TestConnection::new();
    half.end.connected();
    let _ = half.sent();
    let heard = half.hear(said(1000, 77, ACK, b""));
    assert_eq!(heard.refusal.map(|segment| segment.seq), Some(TcpSeq(77)));
    assert_eq!(half.end.state(), TcpState::SynReceived);
}

#[test]
fn the_gateway_calls_and_is_answered() {
    let now = Instant::now();
    let end = TcpEndpoint::calling(FIRST, 1460, now);
    let mut connection = TestConnection { end, now, got: Vec::new() };
    let sent = connection.sent();
    assert_eq!((sent[0].flags, sent[0].seq), (SYN, FIRST));
    assert!(connection.hear(said(0, 5, ACK, b"")).refusal.is_some(), "an old connection of the guest's");
    assert!(connection.hear(said(4999, ours(0), SYN | ACK, b"")).opened);
    let sent = connection.sent();
    assert_eq!((sent[0].flags, sent[0].ack), (ACK, TcpSeq(5000)));
    let mut refused = TestConnection { end: TcpEndpoint::calling(FIRST, 1460, now), now, got: Vec::new() };
    let _ = refused.sent();
    assert!(refused.hear(said(0, ours(0), RST | ACK, b"")).reset);
}
