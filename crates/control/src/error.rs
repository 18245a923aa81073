//! Errors as the protocol carries them: a code, a message, and what to do next.

use serde::{Deserialize, Serialize};

/// Why a request was not carried out. On the wire: the `error` member of a JSON-RPC 2.0 response (section 5.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct RpcError {
    /// Kind of error; [`ErrorCode`] has the ones in use.
    pub code: i32,
    /// What is wrong, one line.
    pub message: String,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<ErrorData>,
}

/// The `data` member of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorData {
    /// What to do next, one line.
    pub hint: String,
    /// The errno netmap would give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Kinds of errors: JSON-RPC's own (section 5.1), and from −32001 down the daemon's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorCode {
    /// Not JSON, or not UTF-8.
    ParseError = -32700,
    /// JSON, but not a request.
    InvalidRequest = -32600,
    /// No such method.
    MethodNotFound = -32601,
    /// Parameters the method does not take.
    InvalidParams = -32602,
    /// A fault of the daemon's.
    InternalError = -32603,
    /// The named port or switch does not exist.
    NotFound = -32001,
    /// The name is taken.
    Exists = -32002,
    /// The caller, or the daemon, may not do this.
    NotPermitted = -32003,
    /// Somebody uses it.
    Busy = -32004,
    /// No memory, descriptors, ports or other room.
    NoRoom = -32005,
    /// This release or system cannot do it.
    NotSupported = -32006,
    /// A device or file refused; the message has the cause.
    Failed = -32007,
}

/// Errno numbers in a form that patterns take.
mod errno {
    use rustix::io::Errno;
    pub const INVAL: i32 = Errno::INVAL.raw_os_error();
    pub const NXIO: i32 = Errno::NXIO.raw_os_error();
    pub const NOENT: i32 = Errno::NOENT.raw_os_error();
    pub const NODEV: i32 = Errno::NODEV.raw_os_error();
    pub const EXIST: i32 = Errno::EXIST.raw_os_error();
    pub const ACCESS: i32 = Errno::ACCESS.raw_os_error();
    pub const PERM: i32 = Errno::PERM.raw_os_error();
    pub const BUSY: i32 = Errno::BUSY.raw_os_error();
    pub const NOMEM: i32 = Errno::NOMEM.raw_os_error();
    pub const NOSPC: i32 = Errno::NOSPC.raw_os_error();
    pub const MFILE: i32 = Errno::MFILE.raw_os_error();
    pub const NFILE: i32 = Errno::NFILE.raw_os_error();
    pub const NOSYS: i32 = Errno::NOSYS.raw_os_error();
    pub const OPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
}

impl RpcError {
    /// An error of that kind.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let data = Some(ErrorData { hint: hint.into(), errno: None });
        RpcError { code: code as i32, message: message.into(), data }
    }

    /// An error for which there is an errno, from which the kind follows.
    pub fn from_errno(errno: i32, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let data = Some(ErrorData { hint: hint.into(), errno: Some(errno) });
        RpcError { code: ErrorCode::of_errno(errno) as i32, message: message.into(), data }
    }

    /// What to do next; empty when the other side did not say.
    pub fn hint(&self) -> &str {
        self.data.as_ref().map_or("", |data| &data.hint)
    }

    /// Whether it is of that kind.
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code == code as i32
    }
}

impl ErrorCode {
    /// The kind of an errno.
    pub fn of_errno(errno: i32) -> ErrorCode {
        match errno {
            errno::INVAL => ErrorCode::InvalidParams,
            errno::NXIO | errno::NOENT | errno::NODEV => ErrorCode::NotFound,
            errno::EXIST => ErrorCode::Exists,
            errno::ACCESS | errno::PERM => ErrorCode::NotPermitted,
            errno::BUSY => ErrorCode::Busy,
            errno::NOMEM | errno::NOSPC | errno::MFILE | errno::NFILE => ErrorCode::NoRoom,
            errno::NOSYS | errno::OPNOTSUPP => ErrorCode::NotSupported,
            _ => ErrorCode::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: an errno decides the code and is kept; an error without data is read, too, and then has no hint.
    #[test]
    fn errno_and_data() {
        let error = RpcError::from_errno(16, "vale0:a is open", "close it first");
        assert!(error.is(ErrorCode::Busy));
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(text, r#"{"code":-32004,"message":"vale0:a is open","data":{"hint":"close it first","errno":16}}"#);
        let bare: RpcError = serde_json::from_str(r#"{"code":1,"message":"no"}"#).unwrap();
        assert_eq!(bare.hint(), "");
        assert_eq!(ErrorCode::of_errno(5), ErrorCode::Failed);
    }
}
