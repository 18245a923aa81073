//! Messages on standard error, in the form of gvproxy's: `time="…" level=info msg="…"`.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

/// A level of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LogLevel {
    Fatal,
    Error,
    Warning,
    Info,
    Debug,
}

/// The highest level that is written.
static HIGHEST: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

impl LogLevel {
    /// Returns the level with a name, in any case of letters.
    pub(super) fn named(name: &str) -> Option<LogLevel> {
        match name.to_ascii_lowercase().as_str() {
            "panic" | "fatal" => Some(LogLevel::Fatal),
            "error" => Some(LogLevel::Error),
            "warn" | "warning" => Some(LogLevel::Warning),
            "info" => Some(LogLevel::Info),
            "debug" | "trace" => Some(LogLevel::Debug),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            LogLevel::Fatal => "fatal",
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

/// Sets the highest level that is written from now on.
pub(super) fn set_level(level: LogLevel) {
    HIGHEST.store(level as u8, Ordering::Relaxed);
}

pub(super) fn fatal(what: impl Display) {
    write(LogLevel::Fatal, what);
}

pub(super) fn error(what: impl Display) {
    write(LogLevel::Error, what);
}

pub(super) fn warning(what: impl Display) {
    write(LogLevel::Warning, what);
}

pub(super) fn info(what: impl Display) {
    write(LogLevel::Info, what);
}

pub(super) fn debug(what: impl Display) {
    write(LogLevel::Debug, what);
}

fn write(level: LogLevel, what: impl Display) {
    if level as u8 <= HIGHEST.load(Ordering::Relaxed) {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        netvale_control::note!("time=\"{time}\" level={} msg={}", level.name(), quoted(&what.to_string()));
    }
}

/// Puts text in quotes, with escapes for quotes and control characters, so that a message is one line.
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
        assert_eq!(LogLevel::named("WARNING"), Some(LogLevel::Warning));
        assert_eq!(LogLevel::named("loud"), None);
        assert!(LogLevel::Fatal < LogLevel::Debug);
    }
}
