//! Requests to a running gateway ([`ControlRequest`]), and its answers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dns::zones::DnsZone;

/// A request. Rules and published ports are text, as on the command line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Lists the user's rules: `{"rules":["allow 192.0.2.7:443/tcp",…]}`.
    Rules,
    /// Adds a rule that allows flows. The answer to this request, and to every other change of rules, is `{"ended":N}`:
    /// the number of flows that were ended because the changed rules no longer allow them.
    Allow {
        /// The rule without its verb.
        rule: String,
    },
    /// Adds a rule that denies flows.
    Deny {
        /// The rule without its verb.
        rule: String,
    },
    /// Adds a rule that limits guests, and replaces an earlier limit rule for the same guests.
    Limit {
        /// The rule without its verb.
        rule: String,
    },
    /// Removes a rule.
    Remove {
        /// The rule with its verb; for a rule that limits guests, the verb and the guests suffice.
        rule: String,
    },
    /// Replaces all rules of the user.
    SetRules {
        /// The rules with their verbs.
        rules: Vec<String>,
    },
    /// Publishes a port.
    Publish {
        /// The port and its destination, such as `127.0.0.1:2222:10.0.0.5:22`.
        rule: String,
    },
    /// Closes a published port.
    Unpublish {
        /// The published port as in [`ControlRequest::Publish`], or only the part that names the host's address and
        /// port.
        rule: String,
    },
    /// Lists the published ports: `{"published":["127.0.0.1:2222:10.0.0.5:22",…]}`.
    Published,
    /// Lists the DHCP leases: `{"leases":[{"ip":…,"mac":…,"name":…,"seconds":…},…]}`.
    Leases,
    /// Returns the counters ([`GatewayStats`](super::stats::GatewayStats)).
    Stats,
    /// Lists the open flows: `{"flows":[…],"more":N}`. Each flow has the fields of the flow log; `more` is the number
    /// of flows that are not listed.
    Flows {
        /// Maximum number of flows that are listed; `None` means the gateway's own maximum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<usize>,
    },
    /// Asks for the flow log: after the answer, the gateway sends the client each new line of the log.
    Follow,
    /// Lists the zones of DNS names: `{"zones":[…]}`.
    Names,
    /// Adds a zone of DNS names, or replaces the zone with the same name.
    SetNames {
        /// The zone.
        zone: DnsZone,
    },
}

/// Parses a line.
///
/// # Errors
/// The reason why the line is not a request.
pub fn parse(line: &[u8]) -> Result<ControlRequest, String> {
    let expected = r#"send one JSON object a line, such as {"do":"rules"}"#;
    serde_json::from_slice(line).map_err(|why| format!("not a request: {why}; {expected}"))
}

/// Encodes an answer, without a line feed.
pub(super) fn answer(answer: &Result<Value, String>) -> Vec<u8> {
    let value = match answer {
        Ok(value) => json!({"ok": value}),
        Err(text) => json!({"error": text}),
    };
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_objects_with_a_verb() {
        for (line, wanted) in [
            (r#"{"do":"rules"}"#, ControlRequest::Rules),
            (r#" {"do":"allow","rule":"any"} "#, ControlRequest::Allow { rule: "any".into() }),
            (r#"{"rules":["deny any"],"do":"set-rules"}"#, ControlRequest::SetRules { rules: vec!["deny any".into()] }),
            (r#"{"do":"follow"}"#, ControlRequest::Follow),
            (r#"{"do":"flows"}"#, ControlRequest::Flows { most: None }),
            (r#"{"do":"flows","most":7}"#, ControlRequest::Flows { most: Some(7) }),
            (r#"{"do":"names"}"#, ControlRequest::Names),
            (
                r#"{"do":"set-names","zone":{"name":"a.","records":[]}}"#,
                ControlRequest::SetNames { zone: DnsZone { name: "a.".into(), ..DnsZone::default() } },
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(wanted.clone()), "{line}");
            assert_eq!(parse(&serde_json::to_vec(&wanted).expect("text")), Ok(wanted));
        }
    }

    #[test]
    fn other_lines_are_refused_with_a_reason() {
        let deep = "[".repeat(10_000);
        for line in ["", "x", "{}", "[]", r#"{"do":"dance"}"#, r#"{"do":"allow"}"#, r#"{"do":"allow","rule":1}"#, &deep]
        {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.starts_with("not a request: ") && error.contains("; send "), "{error}");
        }
        assert!(parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn an_answer_is_a_line() {
        assert_eq!(answer(&Ok(json!({"ended": 0}))), br#"{"ok":{"ended":0}}"#);
        assert_eq!(answer(&Err("a\nb".into())), br#"{"error":"a\nb"}"#);
    }
}
