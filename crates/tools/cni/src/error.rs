//! Errors, in the JSON format of the CNI specification.

use netvale_control::client::{ClientError, ClientErrorKind};
use netvale_netns::NetnsError;
use serde_json::{Value, json};

/// Error codes. Codes below 100 are defined in the specification; codes from 100 on are this plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The version of the specification is not supported.
    Version = 1,
    /// A field has a value that is not supported.
    Unsupported = 2,
    /// The container does not exist, so there is nothing to clean up.
    UnknownContainer = 3,
    /// A parameter in the environment is missing or wrong.
    Environment = 4,
    /// Reading or writing a file or a pipe failed.
    Io = 5,
    /// The input is malformed, such as text that is not JSON.
    Decode = 6,
    /// The input is well-formed, but the network's configuration in it is invalid.
    Config = 7,
    /// A later attempt may succeed.
    TryAgain = 11,
    /// The plugin cannot execute ADD.
    Unavailable = 50,
    /// The container already has this interface.
    Exists = 100,
    /// The container's network differs from its original state.
    Broken = 101,
    /// The daemon refused a request, or its answer is malformed.
    Refused = 102,
    /// The kernel refused a system call or a netlink request.
    Kernel = 103,
}

/// The error of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum CniError {
    /// This plugin's own error.
    Own {
        /// The code.
        code: Code,
        /// The message, in one sentence.
        message: String,
        /// Advice or further information.
        details: String,
    },
    /// The address plugin's error object, which is passed on to the runtime.
    Delegated(Value),
}

impl CniError {
    /// Creates an error with this code.
    pub fn new(code: Code, message: impl Into<String>) -> CniError {
        CniError::Own { code, message: message.into(), details: String::new() }
    }

    /// Creates an error with details, such as advice.
    pub fn advised(code: Code, message: impl Into<String>, details: impl Into<String>) -> CniError {
        CniError::Own { code, message: message.into(), details: details.into() }
    }

    /// Returns message and details as one text.
    pub fn text(&self) -> String {
        match self {
            CniError::Delegated(error) => error.to_string(),
            CniError::Own { message, details, .. } if details.is_empty() => message.clone(),
            CniError::Own { message, details, .. } => format!("{message}; {details}"),
        }
    }

    /// Returns the error in the JSON format of the given version of the specification.
    pub fn json(&self, version: &str) -> Value {
        match self {
            CniError::Delegated(error) => error.clone(),
            CniError::Own { code, message, details } => {
                let mut error = json!({"cniVersion": version, "code": *code as u32, "msg": message});
                if !details.is_empty() {
                    error["details"] = json!(details);
                }
                error
            }
        }
    }
}

impl From<ClientError> for CniError {
    fn from(error: ClientError) -> CniError {
        let code = match error.failure() {
            ClientErrorKind::Unreachable => Code::TryAgain,
            ClientErrorKind::Refused | ClientErrorKind::Protocol => Code::Refused,
        };
        CniError::advised(code, error.what(), error.hint())
    }
}

impl From<NetnsError> for CniError {
    fn from(error: NetnsError) -> CniError {
        let code = match &error {
            NetnsError::Open { .. } => Code::UnknownContainer,
            NetnsError::Move { source, .. } if *source == rustix::io::Errno::EXIST => Code::Exists,
            _ => Code::Kernel,
        };
        CniError::new(code, error.to_string())
    }
}

/// Returns a function that turns an error of the kernel into a [`CniError`]; `step` names the step that failed, to
/// follow "cannot".
pub fn kernel(step: &str) -> impl FnOnce(rustix::io::Errno) -> CniError {
    let step = step.to_owned();
    move |e| CniError::new(Code::Kernel, format!("cannot {step}: {e}"))
}
