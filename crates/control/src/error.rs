//! Errors of the control protocol: a code, a message, and what to do next.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The reason why a request failed. On the wire: the `error` member of a JSON-RPC 2.0 response (section 5.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct RpcError {
    /// Kind of error; [`ErrorCode`] lists the codes in use.
    pub code: i32,
    /// The error, in one line.
    pub message: String,
    /// Hint and errno; `None` if the other side gave neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorData>,
}

/// The `data` member of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorData {
    /// What to do next, in one line.
    pub hint: String,
    /// The errno that netmap would return; `None` if the error has no errno.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Kinds of errors: JSON-RPC's own codes (section 5.1), and the daemon's codes, from −32001 down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// Not JSON, or not UTF-8.
    ParseError = -32700,
    /// JSON, but not a request.
    InvalidRequest = -32600,
    /// No such method.
    MethodNotFound = -32601,
    /// The method does not take these parameters.
    InvalidParams = -32602,
    /// An internal error of the daemon.
    InternalError = -32603,
    /// The named port or switch does not exist.
    NotFound = -32001,
    /// The name is already in use.
    Exists = -32002,
    /// The caller, or the daemon, lacks the permission.
    NotPermitted = -32003,
    /// The port or switch is in use.
    Busy = -32004,
    /// No memory, descriptor, port or other resource is left.
    NoRoom = -32005,
    /// Not supported by this release or system.
    NotSupported = -32006,
    /// A device or file failed; the message names the cause.
    Failed = -32007,
}

/// The codes of errnos; all other errnos have [`ErrorCode::Failed`].
const CODES: &[(&[Errno], ErrorCode)] = &[
    (&[Errno::INVAL], ErrorCode::InvalidParams),
    (&[Errno::NXIO, Errno::NOENT, Errno::NODEV], ErrorCode::NotFound),
    (&[Errno::EXIST], ErrorCode::Exists),
    (&[Errno::ACCESS, Errno::PERM], ErrorCode::NotPermitted),
    (&[Errno::BUSY], ErrorCode::Busy),
    (&[Errno::NOMEM, Errno::NOSPC, Errno::MFILE, Errno::NFILE], ErrorCode::NoRoom),
    (&[Errno::NOSYS, Errno::OPNOTSUPP], ErrorCode::NotSupported),
];

impl RpcError {
    /// Creates an error of the kind `code`.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let data = Some(ErrorData { hint: hint.into(), errno: None });
        RpcError { code: code as i32, message: message.into(), data }
    }

    /// Creates an error from an errno, which determines the kind.
    pub fn from_errno(errno: i32, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let data = Some(ErrorData { hint: hint.into(), errno: Some(errno) });
        RpcError { code: ErrorCode::of_errno(errno) as i32, message: message.into(), data }
    }

    /// Returns what to do next; empty if the other side gave no hint.
    pub fn hint(&self) -> &str {
        self.data.as_ref().map_or("", |data| &data.hint)
    }

    /// Returns whether the error is of the kind `code`.
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code == code as i32
    }
}

impl ErrorCode {
    /// Returns the code for an errno.
    pub fn of_errno(errno: i32) -> ErrorCode {
        let is_of = |errnos: &[Errno]| errnos.iter().any(|known| known.raw_os_error() == errno);
        CODES.iter().find(|(errnos, _)| is_of(errnos)).map_or(ErrorCode::Failed, |(_, code)| *code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: an errno determines the code and is kept; an error without data is accepted and has no hint.
    #[test]
    fn an_errno_decides_the_code_and_is_kept() {
        let error = RpcError::from_errno(16, "vale0:a is open", "close it first");
        assert!(error.is(ErrorCode::Busy));
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(text, r#"{"code":-32004,"message":"vale0:a is open","data":{"hint":"close it first","errno":16}}"#);
        let bare: RpcError = serde_json::from_str(r#"{"code":1,"message":"no"}"#).unwrap();
        assert_eq!(bare.hint(), "");
        assert_eq!(ErrorCode::of_errno(5), ErrorCode::Failed);
    }
}
