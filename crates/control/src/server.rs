//! The daemon's side of a control connection: bytes in, bytes out. Performs no I/O.
//!
//! A line holds a request or an array of requests (a batch, JSON-RPC 2.0 section 6). The answer is a line; a line that
//! holds only notifications gets no answer. Blank lines are skipped. Invalid JSON and invalid requests are answered
//! with an error with the id `null`, and the connection stays open. Two errors end the connection: a line that is too
//! long, and answers that grow too large.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{ErrorCode, RpcError};
use crate::framing::{LineSplitter, MAX_REQUEST_LINE, MAX_TRUSTED_LINE};
use crate::request::{Reply, Request};

pub(crate) mod strict;

/// Maximum number of requests in a batch.
pub const MAX_BATCH: usize = 64;
/// Size in bytes that the answers of one [`ControlConnection::feed`] call may reach. After that, a further request in
/// the same call ends the connection: a client that sends many requests must read answers in between.
pub const MAX_OUTPUT: usize = 4 << 20;

/// Executes requests.
pub trait RequestHandler {
    /// Executes one request. The reply has the variant that the request's documentation names.
    ///
    /// # Errors
    /// The reason why the request failed.
    fn call(&mut self, request: Request) -> Result<Reply, RpcError>;
}

/// The result of [`ControlConnection::feed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlOutput {
    /// Bytes to send.
    pub bytes: Vec<u8>,
    /// Whether to close the connection afterwards.
    pub close: bool,
}

/// The state of one control connection.
#[derive(Clone, Debug)]
pub struct ControlConnection {
    lines: LineSplitter,
    closed: bool,
}

/// An answer on the wire (JSON-RPC 2.0 section 5).
#[derive(Serialize)]
struct RpcResponse {
    jsonrpc: &'static str,
    #[serde(flatten)]
    outcome: RpcOutcome,
    id: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum RpcOutcome {
    Result(Reply),
    Error(RpcError),
}

/// The answer to a line.
#[derive(Serialize)]
#[serde(untagged)]
enum RpcAnswer {
    One(RpcResponse),
    Batch(Vec<RpcResponse>),
}

impl Default for ControlConnection {
    fn default() -> Self {
        ControlConnection { lines: LineSplitter::new(MAX_REQUEST_LINE), closed: false }
    }
}

impl ControlConnection {
    /// Restores the bytes of an unfinished request, which the predecessor's [`ControlConnection::pending`] returned.
    #[must_use]
    pub fn continuing(mut self, pending: &[u8]) -> Self {
        self.lines.push(pending);
        self
    }

    /// Returns the bytes of an unfinished request.
    pub fn pending(&self) -> &[u8] {
        self.lines.pending()
    }

    /// Creates the connection of a caller who may send a configuration file.
    #[must_use]
    pub fn trusted() -> ControlConnection {
        ControlConnection { lines: LineSplitter::new(MAX_TRUSTED_LINE), closed: false }
    }

    /// Takes bytes from the client and executes the requests that these bytes complete. The answers do not depend on
    /// how the stream is cut into pieces, except that [`MAX_OUTPUT`] applies to each piece. After
    /// [`ControlOutput::close`], bytes are ignored.
    pub fn feed(&mut self, bytes: &[u8], handler: &mut dyn RequestHandler) -> ControlOutput {
        let mut out = ControlOutput { bytes: Vec::new(), close: self.closed };
        if self.closed {
            return out;
        }
        self.lines.push(bytes);
        while let Some(line) = self.lines.next_line().transpose() {
            let error = match line {
                Ok(_) if out.bytes.len() >= MAX_OUTPUT => too_many_answers(),
                Ok(line) => {
                    append(&mut out.bytes, answer_line(line, handler));
                    continue;
                }
                Err(error) => too_long(&error.to_string()),
            };
            append(&mut out.bytes, Some(RpcAnswer::One(failure(Value::Null, error))));
            self.closed = true;
            out.close = true;
            break;
        }
        out
    }
}

fn too_long(message: &str) -> RpcError {
    RpcError::new(ErrorCode::InvalidRequest, message, "send one request per line, and split large batches")
}

fn too_many_answers() -> RpcError {
    let message = format!("more than {MAX_OUTPUT} bytes of answers wait to be sent");
    RpcError::new(ErrorCode::NoRoom, message, "read the answers before sending more requests")
}

fn append(out: &mut Vec<u8>, answer: Option<RpcAnswer>) {
    let Some(answer) = answer else { return };
    match serde_json::to_vec(&answer) {
        Ok(mut text) => out.append(&mut text),
        // Replies consist of strings, numbers and lists, which can always be written. If that changes, this error keeps
        // the client from waiting for an answer.
        Err(error) => out.extend_from_slice(unwritable(&error.to_string()).as_bytes()),
    }
    out.push(b'\n');
}

fn unwritable(error: &str) -> String {
    let error = serde_json::json!({ "code": ErrorCode::InternalError as i32, "message": error });
    serde_json::json!({ "jsonrpc": "2.0", "error": error, "id": null }).to_string()
}

fn answer_line(line: &[u8], handler: &mut dyn RequestHandler) -> Option<RpcAnswer> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    match strict::parse(line) {
        Ok(Value::Array(batch)) => answer_batch(batch, handler),
        Ok(value) => answer_one(value, handler).map(RpcAnswer::One),
        Err(error) => {
            let error = if error.is_data() {
                RpcError::new(ErrorCode::InvalidRequest, error.to_string(), "name each member of an object once")
            } else {
                let hint = "send one JSON object per line, in UTF-8";
                RpcError::new(ErrorCode::ParseError, format!("invalid JSON: {error}"), hint)
            };
            Some(RpcAnswer::One(failure(Value::Null, error)))
        }
    }
}

fn answer_batch(batch: Vec<Value>, handler: &mut dyn RequestHandler) -> Option<RpcAnswer> {
    if batch.is_empty() || batch.len() > MAX_BATCH {
        let message = format!("invalid batch of {} requests", batch.len());
        let error = RpcError::new(ErrorCode::InvalidRequest, message, format!("send 1 to {MAX_BATCH} in a batch"));
        return Some(RpcAnswer::One(failure(Value::Null, error)));
    }
    let answers: Vec<_> = batch.into_iter().filter_map(|one| answer_one(one, handler)).collect();
    (!answers.is_empty()).then_some(RpcAnswer::Batch(answers))
}

/// Executes a request. A notification, which has no id, gets no answer, even if it fails (section 4.1).
fn answer_one(value: Value, handler: &mut dyn RequestHandler) -> Option<RpcResponse> {
    let call = match RpcCall::read(value) {
        Ok(call) => call,
        Err((id, error)) => return Some(failure(id, error)),
    };
    let outcome = Request::parse(&call.method, call.params).and_then(|request| handler.call(request));
    let id = call.id?;
    Some(match outcome {
        Ok(reply) => RpcResponse { jsonrpc: "2.0", outcome: RpcOutcome::Result(reply), id },
        Err(error) => failure(id, error),
    })
}

fn failure(id: Value, error: RpcError) -> RpcResponse {
    RpcResponse { jsonrpc: "2.0", outcome: RpcOutcome::Error(error), id }
}

/// A request object (section 4) of valid form.
struct RpcCall {
    method: String,
    params: Option<Value>,
    id: Option<Value>,
}

impl RpcCall {
    /// Reads a request. An error includes the id for the answer: `null` if the request's id is missing or invalid.
    fn read(value: Value) -> Result<RpcCall, (Value, RpcError)> {
        let Value::Object(mut members) = value else {
            return Err((Value::Null, invalid("expected a request object")));
        };
        let id = members.remove("id");
        let answer_to = match &id {
            Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
            _ => Value::Null,
        };
        if id.as_ref().is_some_and(|id| !id.is_null() && answer_to.is_null()) {
            return Err((Value::Null, invalid("expected a string, a number or null as \"id\"")));
        }
        match Self::members(members) {
            Ok((method, params)) => Ok(RpcCall { method, params, id }),
            Err(error) => Err((answer_to, error)),
        }
    }

    fn members(mut members: Map<String, Value>) -> Result<(String, Option<Value>), RpcError> {
        if members.remove("jsonrpc").is_none_or(|version| version != "2.0") {
            return Err(invalid("expected \"2.0\" as \"jsonrpc\""));
        }
        let Some(Value::String(method)) = members.remove("method") else {
            return Err(invalid("expected a string as \"method\""));
        };
        let params = members.remove("params");
        if params.as_ref().is_some_and(|params| !params.is_object() && !params.is_array()) {
            return Err(invalid("expected an object or an array as \"params\", or no \"params\""));
        }
        match members.keys().next() {
            Some(other) => Err(invalid(&format!("unknown member {other:?} in a request"))),
            None => Ok((method, params)),
        }
    }
}

fn invalid(message: &str) -> RpcError {
    let hint = "send {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\"}; \
                control-protocol.md in the reference describes all requests";
    RpcError::new(ErrorCode::InvalidRequest, message, hint)
}

#[cfg(test)]
mod tests;
