//! The typed view of a kind's options.

use netvale_control::options::{AttachOption, kind};
use netvale_control::types::PortOptions;
use serde_json::{Value, json};

/// Objective: a view is only made of options that its kind takes.
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
