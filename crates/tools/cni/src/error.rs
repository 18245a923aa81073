//! Errors, as the runtime reads them.

use netvale_control::client::{ClientError, Failure};
use netvale_netns::NetnsError;
use serde_json::{Value, json};

/// Codes of the specification, and from 100 on those of this plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The version is not spoken.
    Version = 1,
    /// A field has a value that is not supported.
    Unsupported = 2,
    /// The container is not known: nothing is left to be cleaned up.
    UnknownContainer = 3,
    /// A parameter in the environment is missing or wrong.
    Environment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// What was read is not what it should be.
    Decode = 6,
    /// The configuration is wrong.
    Config = 7,
    /// It may work later.
    TryAgain = 11,
    /// The plugin cannot serve ADD.
    Unavailable = 50,
    /// The container has this interface already.
    Exists = 100,
    /// Something of the container's network is not as it was made.
    Broken = 101,
    /// The daemon refused.
    Refused = 102,
    /// The kernel refused.
    Kernel = 103,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq)]
pub enum CniError {
    /// Found here.
    Own {
        /// The kind.
        code: Code,
        /// One sentence.
        message: String,
        /// What to do, or what else is known.
        details: String,
    },
    /// The error of a plugin that was called, as it said it.
    Delegated(Value),
}

impl CniError {
    /// An error of that kind.
    pub fn new(code: Code, message: impl Into<String>) -> CniError {
        CniError::Own { code, message: message.into(), details: String::new() }
    }

    /// An error with advice.
    pub fn advised(code: Code, message: impl Into<String>, details: impl Into<String>) -> CniError {
        CniError::Own { code, message: message.into(), details: details.into() }
    }

    /// As the runtime reads it.
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
            Failure::Unreachable => Code::TryAgain,
            Failure::Refused | Failure::Protocol => Code::Refused,
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

/// An error of the kernel's at a step.
pub fn kernel(step: &str) -> impl FnOnce(rustix::io::Errno) -> CniError {
    let step = step.to_owned();
    move |e| CniError::new(Code::Kernel, format!("{step}: {e}"))
}
