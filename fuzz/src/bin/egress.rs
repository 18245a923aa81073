//! Parses arbitrary lines as requests to a running gateway, and as the gateway's rules and published ports.
#![cfg_attr(feature = "libfuzzer", no_main)]

use netvale_fuzz::fuzz_target;
use netvale_gateway::control::message;
use netvale_gateway::policy::{EgressPolicy, EgressRule, NamePattern};
use netvale_gateway::publish::rule::PublishRule;

fuzz_target!(|data: &[u8]| {
    let mut policy = EgressPolicy::default();
    for line in data.split(|byte| *byte == b'\n') {
        match message::parse(line) {
            Ok(request) => {
                let text = serde_json::to_vec(&request).expect("a request is text");
                assert_eq!(message::parse(&text), Ok(request));
            }
            Err(why) => assert!(why.contains("; ")),
        }
        let Ok(text) = std::str::from_utf8(line) else { continue };
        if let Ok(rule) = text.parse::<PublishRule>() {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        if let Ok(pattern) = text.parse::<NamePattern>() {
            assert_eq!(pattern.to_string().parse(), Ok(pattern.clone()));
            assert!(!pattern.matches("") && !pattern.matches("."));
        }
        if let Ok(rule) = text.parse::<EgressRule>() {
            let shown = rule.to_string();
            assert_eq!(shown.parse(), Ok(rule.clone()));
            policy.add(rule.clone());
            assert!(policy.rules().contains(&rule));
        }
    }
    policy.resolves("example.com");
});
