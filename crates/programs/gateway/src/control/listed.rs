//! The open flows in a gateway's answer ([`FlowList`]), for programs that query gateways that they do not trust: the
//! list and its texts are cut to a maximum length, unknown fields are skipped, and values of unexpected types are
//! errors.

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum number of flows that are listed.
pub const MAX_LISTED: usize = 200;
/// Maximum length of a text in bytes; a DNS name has at most 253 bytes.
const MAX_TEXT: usize = 256;

/// The answer to [`ControlRequest::Flows`](super::message::ControlRequest::Flows).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowList {
    /// The flows, at most [`MAX_LISTED`].
    #[serde(deserialize_with = "flows")]
    pub flows: Vec<ListedFlow>,
    /// Number of flows that are not listed.
    pub more: u64,
}

/// An open flow, with some of the fields that the flow log has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListedFlow {
    /// The transport protocol.
    pub transport: CutText,
    /// `out` if the guest opened the flow, `in` if the other end did.
    pub direction: CutText,
    /// The guest's address and port.
    pub guest: CutText,
    /// The other end's address and port.
    pub remote: CutText,
    /// The DNS name that the guest resolved to the other end's address; `None` if the guest resolved no name to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<CutText>,
    /// Number of payload bytes from the guest.
    pub sent: u64,
    /// Number of payload bytes to the guest.
    pub received: u64,
    /// Age of the flow in seconds.
    pub seconds: f64,
}

/// A text that is cut to at most 256 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct CutText(String);

impl From<String> for CutText {
    fn from(text: String) -> Self {
        CutText(text[..text.floor_char_boundary(MAX_TEXT)].to_owned())
    }
}

fn flows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ListedFlow>, D::Error> {
    struct FlowsVisitor;
    impl<'de> Visitor<'de> for FlowsVisitor {
        type Value = Vec<ListedFlow>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of flows")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut flows = Vec::new();
            while flows.len() < MAX_LISTED
                && let Some(flow) = list.next_element()?
            {
                flows.push(flow);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(flows)
        }
    }
    deserializer.deserialize_seq(FlowsVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_texts_are_cut_and_unknown_fields_skipped() {
        let flow =
            json!({"name": "é".repeat(200), "guest": "10.0.0.9:1", "sent": u64::MAX, "later": [[[{"deep": 1}]]]});
        let answer = json!({"flows": vec![flow; 300], "more": 7, "later": {}}).to_string();
        let list: FlowList = serde_json::from_str(&answer).unwrap();
        assert_eq!((list.flows.len(), list.more, list.flows[0].sent), (MAX_LISTED, 7, u64::MAX));
        let again = json!(list.flows[0]);
        assert_eq!(again["name"].as_str().map(str::len), Some(MAX_TEXT));
        assert_eq!((again.get("later"), &again["guest"]), (None, &"10.0.0.9:1".into()));
    }

    #[test]
    fn other_types_than_the_expected_ones_are_refused() {
        for flows in
            [json!(null), json!({}), json!([null]), json!(["x"]), json!([{"sent": -1}]), json!([{"guest": {}}])]
        {
            let answer = json!({"flows": flows, "more": 0});
            assert!(serde_json::from_value::<FlowList>(answer.clone()).is_err(), "{answer}");
        }
        for more in [json!(null), json!("1"), json!(-1)] {
            assert!(serde_json::from_value::<FlowList>(json!({"flows": [], "more": more})).is_err());
        }
    }
}
