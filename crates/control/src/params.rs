//! Parses the parameters of requests.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{ErrorCode, RpcError};

/// Parses parameters by name or by position (JSON-RPC 2.0 section 4.2).
pub fn params_of<T: DeserializeOwned>(method: &str, params: Option<Value>) -> Result<T, RpcError> {
    let params = params.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    serde_json::from_value(params).map_err(|error| {
        let hint = format!("control-protocol.md in the reference has an example of {method}");
        RpcError::new(ErrorCode::InvalidParams, format!("{method}: {error}"), hint)
    })
}
