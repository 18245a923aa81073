//! Messages on standard error, in the form of gvproxy's: `time="…" level=info msg="…"`.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

/// A level of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GvLogLevel {
    Fatal,
    Error,
    Warning,
    Info,
    Debug,
}

/// The least severe level whose messages are written.
static HIGHEST: AtomicU8 = AtomicU8::new(GvLogLevel::Info as u8);

impl GvLogLevel {
    /// Returns the level called `name`, in upper or lower case; `None` if there is no such level.
    pub(super) fn named(name: &str) -> Option<GvLogLevel> {
        match name.to_ascii_lowercase().as_str() {
            "panic" | "fatal" => Some(GvLogLevel::Fatal),
            "error" => Some(GvLogLevel::Error),
            "warn" | "warning" => Some(GvLogLevel::Warning),
            "info" => Some(GvLogLevel::Info),
            "debug" | "trace" => Some(GvLogLevel::Debug),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            GvLogLevel::Fatal => "fatal",
            GvLogLevel::Error => "error",
            GvLogLevel::Warning => "warning",
            GvLogLevel::Info => "info",
            GvLogLevel::Debug => "debug",
        }
    }
}

/// Sets the least severe level whose messages are written.
pub(super) fn set_level(level: GvLogLevel) {
    HIGHEST.store(level as u8, Ordering::Relaxed);
}

pub(super) fn fatal(what: impl Display) {
    write(GvLogLevel::Fatal, what);
}

pub(super) fn error(what: impl Display) {
    write(GvLogLevel::Error, what);
}

pub(super) fn warning(what: impl Display) {
    write(GvLogLevel::Warning, what);
}

pub(super) fn info(what: impl Display) {
    write(GvLogLevel::Info, what);
}

pub(super) fn debug(what: impl Display) {
    write(GvLogLevel::Debug, what);
}

fn write(level: GvLogLevel, what: impl Display) {
    if level as u8 <= HIGHEST.load(Ordering::Relaxed) {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        netvale_control::note!("time=\"{time}\" level={} msg={}", level.name(), quoted(&what.to_string()));
    }
}

/// Puts text in quotes, with escapes for quotes and control characters, so that a message takes exactly one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => quoted.extend(letter.escape_unicode()),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(quoted("a \"b\"\n\u{7}"), r#""a \"b\"\n\u{7}""#);
    }

    #[test]
    fn levels_have_gvproxys_names() {
        assert_eq!(GvLogLevel::named("WARNING"), Some(GvLogLevel::Warning));
        assert_eq!(GvLogLevel::named("loud"), None);
        assert!(GvLogLevel::Fatal < GvLogLevel::Debug);
    }
}
