//! The access *token* ([`Token`]): a secret text. A browser that sends it may read everything that the server's user
//! may read.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Number of random bytes in a new token, which has two characters for each byte.
const RANDOM: usize = 24;
/// Minimum and maximum length of a token from a file, in characters.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=256;

/// A secret text of letters, digits and `-._~`, which need no escaping in URLs and header fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The reason why a token cannot be read or created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The system returned no random bytes, or the file cannot be read or created.
    #[error("cannot read or create {}: {source}", path.display())]
    Io {
        /// The file's path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Users who are neither the file's owner nor in the file's group can access the file.
    #[error("{}: other users of this host can read or change it (mode {mode:o}); use mode 600", path.display())]
    Open {
        /// The file's path.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// Another user created the file, and therefore knows the token.
    #[error("{}: expected a file owned by root or by this user, found owner {uid}", path.display())]
    Foreign {
        /// The file, or the link to it.
        path: PathBuf,
        /// User ID of the owner.
        uid: u32,
    },
    /// The file has no valid token.
    #[error("{}: expected one line of 16 to 256 letters, digits and characters of -._~", path.display())]
    Malformed {
        /// The file's path.
        path: PathBuf,
    },
}

impl Token {
    /// Creates a random token.
    ///
    /// # Errors
    /// The system returned no random bytes.
    pub fn random() -> Result<Token, TokenError> {
        let path = Path::new("/dev/urandom");
        let mut bytes = [0; RANDOM];
        File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|e| failed(path, e))?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token in a file. If the file does not exist, creates it with a random token.
    ///
    /// # Errors
    /// The file can be neither read nor created, other users can read it, or it contains no valid token.
    pub fn of_file(path: &Path) -> Result<Token, TokenError> {
        // A symbolic link is followed unless another user has created it, because the secrets of containers are links.
        if let Ok(link) = std::fs::symlink_metadata(path) {
            is_trusted(path, &link)?;
        }
        match File::open(path) {
            Ok(file) => Token::read(path, file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let token = Token::random()?;
                let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                made.and_then(|mut file| writeln!(file, "{}", token.0)).map_err(|e| failed(path, e))?;
                Ok(token)
            }
            Err(e) => Err(failed(path, e)),
        }
    }

    fn read(path: &Path, file: File) -> Result<Token, TokenError> {
        let found = file.metadata().map_err(|e| failed(path, e))?;
        is_trusted(path, &found)?;
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(TokenError::Open { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(2 * *LENGTH.end() as u64).read_to_string(&mut text).map_err(|e| failed(path, e))?;
        Token::parse(text.trim_end()).ok_or_else(|| TokenError::Malformed { path: path.to_owned() })
    }

    /// Parses a text as a token; `None` if it is not a valid token.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        (LENGTH.contains(&text.len()) && text.bytes().all(is_fine)).then(|| Token(text.to_owned()))
    }

    /// Returns the token's text.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Returns whether a text is this token. The time of the comparison does not depend on where the texts differ.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        let own = self.0.as_bytes();
        let other = text.as_bytes();
        let differs = own.iter().zip(other).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
        own.len() == other.len() && differs == 0
    }
}

/// Prints only the type's name, to keep the token out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Checks that the file with the metadata `found` belongs to root or to this user.
fn is_trusted(path: &Path, found: &Metadata) -> Result<(), TokenError> {
    let uid = found.uid();
    let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw();
    if is_own { Ok(()) } else { Err(TokenError::Foreign { path: path.to_owned(), uid }) }
}

fn failed(path: &Path, source: io::Error) -> TokenError {
    TokenError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: tokens differ, parse as tokens, are equal only to the whole text, and are hidden in debug output.
    #[test]
    fn tokens_differ_and_stay_hidden() {
        let [one, other] = [Token::random(), Token::random()].map(|token| token.expect("random bytes"));
        assert_ne!(one, other);
        assert_eq!(one.secret().len(), 2 * RANDOM);
        assert_eq!(Token::parse(one.secret()), Some(one.clone()));
        assert!(one.is(one.secret()));
        for wrong in ["", &one.secret()[1..], &format!("{}0", one.secret()), other.secret()] {
            assert!(!one.is(wrong), "{wrong}");
        }
        assert!(!format!("{one:?}").contains(one.secret()));
    }

    /// Objective: a file is created once, with access only for its user; a file that other users can read, or that
    /// contains no valid token, is refused.
    #[test]
    fn a_token_file_is_made_for_its_user_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        let made = Token::of_file(&path).expect("made");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::of_file(&path).expect("read"), made);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("a mode");
        assert!(matches!(Token::of_file(&path), Err(TokenError::Open { mode: 0o644, .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("a mode");
        for text in ["", "short", "sixteen spaces  ", &"x".repeat(257), "0123456789abcdef\n0123"] {
            std::fs::write(&path, text).expect("written");
            assert!(matches!(Token::of_file(&path), Err(TokenError::Malformed { .. })), "{text}");
        }
        std::fs::write(&path, "0123456789abc-._\n").expect("written");
        assert!(Token::of_file(&path).expect("read").is("0123456789abc-._"));
        assert!(matches!(Token::of_file(&dir.path().join("no/token")), Err(TokenError::Io { .. })));
    }
}
