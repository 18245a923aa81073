//! Parses arbitrary text as the name of a port to open, and as a port to attach.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::fmt::{Debug, Display};

use netvale_fuzz::fuzz_target;
use netvale_portspec::{AttachSpec, ParseError, PortSpec};

fuzz_target!(|text: &str| {
    check(text, PortSpec::parse);
    check(text, AttachSpec::parse);
    for exists in [false, true] {
        check(text, |text| Ok(PortSpec::parse(text)?.settled(|_| exists)));
    }
    if let Ok(spec) = AttachSpec::parse(text) {
        assert!(!spec.port_name().as_str().is_empty(), "{text:?}");
    }
});

/// Checks that a parsed value is printed as text that is parsed to the same value, and that the position in an error is
/// within the text.
fn check<T: Debug + Display + PartialEq>(text: &str, parse: impl Fn(&str) -> Result<T, ParseError>) {
    match parse(text) {
        Ok(value) => assert_eq!(parse(&value.to_string()).as_ref(), Ok(&value), "{text:?}"),
        Err(error) => {
            assert!(error.text().is_char_boundary(error.offset()), "{text:?}");
            assert!(text.starts_with(error.text()), "{text:?}");
            assert!(error.to_string().contains('^'), "{text:?}");
        }
    }
}
