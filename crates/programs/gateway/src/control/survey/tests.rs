//! Surveys of gateways that answer, hang, send errors or send too much, and of files that are not control sockets.

use super::*;
use crate::control::path_in;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

const LIMITS: SurveyLimits = SurveyLimits { time: Duration::from_millis(300), answer: 1 << 16, all: 1 << 20 };
/// Limits with a very long time, for surveys that must end before their time limit.
const LONG: SurveyLimits = SurveyLimits { time: Duration::from_secs(3600), ..LIMITS };

/// Starts a thread that acts as a gateway: reads one client's request, and answers with the pieces. The thread returns
/// the request.
fn answering(folder: &Path, port: &str, pieces: Vec<String>) -> std::thread::JoinHandle<String> {
    let listener = UnixListener::bind(path_in(folder, port)).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
        let _ = pieces.iter().try_for_each(|piece| stream.write_all(piece.as_bytes()));
        request
    })
}

fn stats(folder: &Path, limits: &SurveyLimits) -> Vec<SurveyedGateway<Value>> {
    survey(&[folder.to_owned(), folder.join("none")], &ControlRequest::Stats, limits)
}

fn none(port: &str) -> SurveyedGateway<Value> {
    SurveyedGateway { port: port.into(), answer: None }
}

fn socket(folder: &Path, port: &str) -> GatewaySocket {
    GatewaySocket::at(path_in(folder, port)).unwrap()
}

#[test]
fn each_gateway_answers_for_itself_and_none_waits_for_one_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let answering = |port, text: &[&str]| answering(folder.path(), port, text.iter().map(|&s| s.into()).collect());
    let good = answering("vale0:gateway", &["{\"ok\":{\"tc", "p\":3}}\nmore"]);
    let others = [
        answering("vale1:gateway", &["{\"error\":\"too many clients; end one\"}\n"]),
        answering("vale2:gateway", &[]),
        answering("vale2:odd", &["{]\n"]),
        answering("vale2:old", &["{}\n"]),
    ];
    let hangs = UnixListener::bind(path_in(folder.path(), "vale3:out")).unwrap();
    drop(UnixListener::bind(path_in(folder.path(), "vale4:left")).unwrap());
    let begin = Instant::now();
    let answers = stats(folder.path(), &LIMITS);
    assert!(begin.elapsed() >= LIMITS.time, "the one that hangs has all the time");
    let first = SurveyedGateway { port: "vale0:gateway".into(), answer: Some(json!({"tcp": 3})) };
    let silent = ["vale1:gateway", "vale2:gateway", "vale2:odd", "vale2:old", "vale3:out"].map(none);
    assert_eq!(answers, [&[first][..], &silent].concat());
    assert_eq!(good.join().unwrap(), "{\"do\":\"stats\"}\n");
    others.into_iter().for_each(|other| drop(other.join().unwrap()));
    drop(hangs);
}

/// Objective: an answer that exceeds the limit per answer, or the limit of all answers together, counts as missing; the
/// answers of other gateways arrive.
#[test]
fn answers_beyond_the_limits_of_size_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |len: usize| vec![format!("{{\"ok\":\"{}\"}}\n", "x".repeat(len))];
    let long = answering(folder.path(), "vale0:long", answer(LONG.answer));
    let good = answering(folder.path(), "vale1:good", answer(LONG.answer - 64));
    let answers = stats(folder.path(), &LONG);
    assert_eq!(answers[0], none("vale0:long"));
    assert!(answers[1].answer.is_some());
    [long, good].into_iter().for_each(|one| drop(one.join().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let ports = ["a", "b", "c", "d"].map(|port| answering(folder.path(), port, answer(LONG.answer - 64)));
    let answers = stats(folder.path(), &SurveyLimits { all: 2 * LONG.answer, ..LONG });
    assert!(answers.iter().filter(|one| one.answer.is_some()).count() <= 2, "{}", answers.len());
    assert_eq!(answers.len(), 4);
    ports.into_iter().for_each(|one| drop(one.join().unwrap()));
}

#[test]
fn links_and_other_files_are_no_control_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere.sock");
    let live = UnixListener::bind(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path_in(folder.path(), "vale0:link")).unwrap();
    std::fs::write(path_in(folder.path(), "vale0:file"), "no socket").unwrap();
    std::fs::create_dir(path_in(folder.path(), "vale0:folder")).unwrap();
    assert_eq!(sockets(&[folder.path().to_owned()]), []);
    assert_eq!(stats(folder.path(), &LONG), []);
    drop(live);
}

/// Objective: sockets at which no process listens do not count towards the maximum number of gateways.
#[test]
fn sockets_without_a_gateway_hide_none() {
    let folder = tempfile::tempdir().unwrap();
    for at in 0..=MAX_GATEWAYS {
        drop(UnixListener::bind(path_in(folder.path(), &format!("a{at}"))).unwrap());
    }
    let good = answering(folder.path(), "vale0:gateway", vec!["{\"ok\":1}\n".into()]);
    let found = SurveyedGateway { port: "vale0:gateway".into(), answer: Some(json!(1)) };
    assert_eq!(stats(folder.path(), &LONG), [found]);
    good.join().unwrap();
}

#[test]
fn only_root_believes_other_users_and_those_only_about_their_own_sockets() {
    for (asker, owner, listener, expected) in [
        (7, 7, 7, true),
        (7, 8, 7, true),
        (7, 7, 0, true),
        (7, 7, 8, false),
        (7, 8, 8, false),
        (0, 8, 8, true),
        (0, 0, 8, false),
        (0, 9, 8, false),
    ] {
        assert_eq!(is_trusted(asker, owner, listener), expected, "{asker} {owner} {listener}");
    }
}

#[test]
fn a_full_queue_of_connections_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let full = UnixListener::bind(path_in(folder.path(), "vale0:gateway")).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let at = socket(folder.path(), "vale0:gateway");
    let mut waiting = Vec::new();
    while let Ok(peer) = GatewayPeer::ask(&at, &ControlRequest::Stats, 64) {
        waiting.push(peer);
    }
    assert_eq!(stats(folder.path(), &LONG), [none("vale0:gateway")]);
}

fn peer(most: usize) -> (UnixStream, GatewayPeer) {
    let (there, own) = UnixStream::pair().unwrap();
    (there, GatewayPeer::new(own.into(), most))
}

#[test]
fn lines_in_pieces_become_whole() {
    let (mut there, mut gateway) = peer(64);
    for (piece, lines) in [("a", vec![]), ("b\n\nc", vec!["ab", ""]), ("d\n", vec!["cd"])] {
        there.write_all(piece.as_bytes()).unwrap();
        assert!(gateway.read().is_continue());
        let mut got = Vec::new();
        while let Some(line) = gateway.next_line() {
            got.push(String::from_utf8_lossy(line).into_owned());
        }
        assert_eq!(got, lines);
    }
}

#[test]
fn a_line_that_is_too_long_ends_the_connection_with_and_without_its_end() {
    for text in [&[b'x'; 65][..], &[&[b'x'; 65][..], b"\n"].concat()] {
        let (mut there, mut gateway) = peer(64);
        there.write_all(b"first\n").unwrap();
        there.write_all(text).unwrap();
        assert!(gateway.read().is_continue());
        assert_eq!(gateway.next_line(), Some(&b"first"[..]));
        assert!(gateway.next_line().is_none() && gateway.read().is_break());
    }
}

#[test]
fn a_long_buffer_of_short_lines_is_moved_once_a_read() {
    let (mut there, mut gateway) = peer(64);
    there.write_all(&b"\n".repeat(CHUNK)).unwrap();
    assert!(gateway.read().is_continue());
    for taken in 1..=CHUNK {
        assert!(gateway.next_line().is_some());
        assert_eq!((gateway.inbox.len(), gateway.begin), (CHUNK, taken));
    }
    assert!(gateway.next_line().is_none() && gateway.read().is_continue() && gateway.inbox.is_empty());
}

#[test]
fn an_answer_is_what_is_ok() {
    assert_eq!(answer::<u64>(br#"{"ok":7,"later":[]}"#), Some(7));
    assert!(answer::<IgnoredAny>(br#"{"ok":{}}"#).is_some());
    for other in [&br#"{"error":"no; ask"}"#[..], b"", b"[]", b"{}", br#"{"ok":"7"}"#, b"\xff"] {
        assert_eq!(answer::<u64>(other), None);
    }
}
