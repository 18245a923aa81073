//! Sends arbitrary bytes to a control connection, first as a whole and then in pieces. Configuration files in the
//! requests are parsed, but not applied.
//!
//! Input: one byte with the size of the pieces, and the bytes to send.
#![cfg_attr(feature = "libfuzzer", no_main)]

use netvale_control::server::{ControlConnection, RequestHandler};
use netvale_control::types::{ApplyResult, Confirmation, Version};
use netvale_control::{Reply, Request, RpcError};
use netvale_daemon::config::{self, Overrides};
use netvale_fuzz::fuzz_target;

/// A handler that records all requests, refuses some of them, and executes none.
#[derive(Default)]
struct DummyHandler(Vec<Request>);

impl RequestHandler for DummyHandler {
    fn call(&mut self, request: Request) -> Result<Reply, RpcError> {
        self.0.push(request.clone());
        match request {
            Request::Version => Ok(Reply::Version(Version::current())),
            Request::ConfigApply(params) => match config::parse(&params.text, "f", &Overrides::default()) {
                Ok(_) => Ok(Reply::Applied(ApplyResult::default())),
                Err(mistake) => Err(RpcError::from_errno(22, mistake.to_string(), "")),
            },
            Request::PortShow(params) => Err(RpcError::from_errno(6, params.port, "")),
            _ => Ok(Reply::Done(Confirmation {})),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, stream)) = data.split_first() else { return };
    let mut whole = ControlConnection::default();
    let mut asked = DummyHandler::default();
    let out = whole.feed(stream, &mut asked);
    let mut cut = ControlConnection::default();
    let mut asked_cut = DummyHandler::default();
    let mut answers = Vec::new();
    let mut close = false;
    for piece in stream.chunks(usize::from(size).max(1)) {
        let some = cut.feed(piece, &mut asked_cut);
        answers.extend(some.bytes);
        close = some.close;
    }
    assert!(out.bytes == answers && out.close == close && asked.0 == asked_cut.0);
    let text = String::from_utf8(out.bytes).expect("answers are text");
    assert!(text.is_empty() || text.ends_with('\n'));
    assert!(text.lines().all(|line| line.starts_with(['{', '['])));
});
