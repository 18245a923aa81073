//! The typed view of a kind's options.

use netvale_control::options::AttachOption;
use netvale_control::options::kind::{self, SpecKind};
use netvale_control::types::PortOptions;
use netvale_portspec::AttachSpec;
use serde_json::{Value, json};

/// Objective: `PortOptions::of` returns the typed view of a kind only if that kind takes all options that are set.
#[test]
fn no_view_of_options_of_another_kind() {
    let has = |options: Value| {
        let options: PortOptions = serde_json::from_value(options).unwrap();
        (options.of::<kind::Tap>().is_some(), options.of::<kind::Replay>().is_some())
    };
    assert!(
        AttachOption::find("speed").is_some_and(|option| option
            .kinds()
            .is_some_and(|kinds| kinds == [&<kind::Replay as kind::KindType>::KIND]))
    );
    assert_eq!(has(json!({"lossless": true})), (true, true));
    assert_eq!(has(json!({"lossless": true, "rings": 2})), (true, false));
    assert_eq!(has(json!({"speed": 0.0})), (false, true));
}

/// Objective: a kind's description is consistent: the example is a port of the kind; the options that the kind names
/// exist, are not for all kinds, and include the options that the kind adjusts.
#[test]
fn kinds_are_whole() {
    let known = |key: &str| AttachOption::find(key).is_some_and(|option| option.kinds().is_some());
    for kind in SpecKind::ALL {
        assert_eq!(AttachSpec::parse(kind.example).unwrap().kind(), kind);
        assert!(kind.takes.iter().all(|key| known(key)), "{kind}: {:?}", kind.takes);
        assert!(kind.adjusts.iter().all(|key| kind.takes(key)), "{kind}: {:?}", kind.adjusts);
    }
}
