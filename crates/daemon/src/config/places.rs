//! Positions of mistakes in a configuration file: line and column.

use std::fmt;

use toml::de::DeTable;

use super::{Config, ConfigFile, Overrides};

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
}

/// An error in a file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the file.
    pub file: String,
    /// The position of the error; `None` if the position is unknown.
    pub place: Option<TextPlace>,
    /// Description in one line.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(TextPlace { line, column }) => write!(f, "{}:{line}:{column}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for Mistake {}

impl TextPlace {
    fn of(text: &str, offset: usize) -> TextPlace {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        TextPlace { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }

    /// Returns the position of the value of `key` in the `[[port]]` table with that index, from 0. If the table lacks
    /// the key, returns the position of the value of `port`. Returns `None` if there is no such table.
    #[must_use]
    pub fn of_port(text: &str, index: usize, key: &str) -> Option<TextPlace> {
        let table = DeTable::parse(text).ok()?;
        let port = table.get_ref().get("port")?.get_ref().as_array()?.get(index)?;
        let keys = port.get_ref().as_table()?;
        let value = keys.get(key).or_else(|| keys.get("port"));
        Some(TextPlace::of(text, value.unwrap_or(port).span().start))
    }
}

/// Parses the text of a file, and overrides its settings by those of a command line.
///
/// # Errors
/// The first error, with its position.
pub fn parse(text: &str, file: &str, overrides: &Overrides) -> Result<Config, Mistake> {
    let mistake = |place, what: String| Mistake { file: file.to_owned(), place, what: what.trim().replace('\n', "; ") };
    let parsed = ConfigFile::parse(text).map_err(|error| {
        mistake(error.span().map(|span| TextPlace::of(text, span.start)), error.message().to_owned())
    })?;
    overrides.over(parsed).map_err(|error| mistake(None, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each type of mistake is reported with its line, and with its column, counted in characters.
    #[test]
    fn each_mistake_is_reported_with_line_and_column() {
        let told = |text: &str| parse(text, "f.toml", &Overrides::default()).unwrap_err().to_string();
        for (text, start, word) in [
            ("wrokers = 2", "f.toml:1:1: ", "wrokers"),
            ("workers = 2\nworkers = = 3", "f.toml:2:1", ""),
            ("\nrt_priority = 100", "f.toml:2:15: ", "rt_priority is 100"),
            ("workers = 2\n[switch]\nageing_s = 0", "f.toml:3:12: ", "ageing_s is 0"),
            ("[sockets]\nmode = '9'", "f.toml:2:8: ", "octal"),
            (
                "[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch = 'vale0'\nport = 'ä:x'",
                "f.toml:6:8: ",
                "invalid port",
            ),
            ("[[port]]\nswitch='vale0'\nport='a'\nmtu='x'", "f.toml:4:5: ", "mtu"),
            ("[[port]]\nport='a' # ä\nswitch='v:' ", "f.toml:3:8: ", "switch"),
            ("[[port]]\nswitch='vale0'\nport='a'\n[[port]]\nswitch='vale0'\nport='a'", "f.toml:6:6: ", "vale0:a"),
            ("x = 'unfinished", "f.toml:1:", ""),
        ] {
            let text = told(text);
            assert!(text.starts_with(start) && text.contains(word) && !text.contains('\n'), "{text}");
        }
    }

    /// Objective: the position of a port's key is found by the port's index; if the key is missing, the position of
    /// `port` is returned.
    #[test]
    fn the_key_of_a_port_is_found() {
        let text = "[[port]]\nport = 'a'\n\n[[port]]\nmtu = 9\nport = 'b'\n";
        let at = |index, key| TextPlace::of_port(text, index, key).map(|place| (place.line, place.column));
        assert_eq!((at(0, "port"), at(1, "mtu"), at(1, "rings")), (Some((2, 8)), Some((5, 7)), Some((6, 8))));
        assert_eq!(at(2, "port"), None);
    }
}
