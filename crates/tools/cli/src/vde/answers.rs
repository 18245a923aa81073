//! What commands are answered: data in lines, and a number. Numbers are 1000 and that of the system's error, which
//! programs read; so they are those of VDE, and its words.

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdeError {
    /// No such file (ENOENT).
    NoFile,
    /// The daemon does not answer (EIO).
    NoAnswer,
    /// No such port or VLAN (ENXIO).
    NotFound,
    /// It exists (EEXIST).
    Exists,
    /// No such address (ENODEV).
    NoAddress,
    /// A number or a word is wrong (EINVAL).
    Invalid,
    /// There is no room for another one (ENOSPC).
    Full,
    /// No such command (ENOSYS).
    NoCommand,
    /// Files that load one another (ELOOP).
    Loop,
    /// Nothing of the kind is here (EOPNOTSUPP).
    Unsupported,
    /// It is in use (EADDRINUSE).
    InUse,
}

impl VdeError {
    /// Its number and its words, as strerror(3) has them.
    fn parts(self) -> (u16, &'static str) {
        match self {
            VdeError::NoFile => (2, "No such file or directory"),
            VdeError::NoAnswer => (5, "Input/output error"),
            VdeError::NotFound => (6, "No such device or address"),
            VdeError::Exists => (17, "File exists"),
            VdeError::NoAddress => (19, "No such device"),
            VdeError::Invalid => (22, "Invalid argument"),
            VdeError::Full => (28, "No space left on device"),
            VdeError::NoCommand => (38, "Function not implemented"),
            VdeError::Loop => (40, "Too many levels of symbolic links"),
            VdeError::Unsupported => (95, "Operation not supported"),
            VdeError::InUse => (98, "Address already in use"),
        }
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdeAnswer {
    /// To an empty line.
    Nothing,
    /// It is done, or refused.
    Done(Result<(), VdeError>),
    /// The same, of a command that tells something: lines, each with its end.
    Told(String, Result<(), VdeError>),
    /// What commands of a file are answered, and whether it could be read.
    Loaded(String, Result<(), VdeError>),
    /// The session ends.
    Logout,
    /// The switch ends.
    Shutdown,
}

impl VdeAnswer {
    /// What a command tells, or why it tells nothing.
    pub fn told(told: Result<String, VdeError>) -> VdeAnswer {
        match told {
            Ok(text) => VdeAnswer::Told(text, Ok(())),
            Err(why) => VdeAnswer::Told(String::new(), Err(why)),
        }
    }

    /// Its lines, without the empty one that follows in a session.
    pub fn lines(&self) -> String {
        match self {
            VdeAnswer::Nothing | VdeAnswer::Logout | VdeAnswer::Shutdown => String::new(),
            VdeAnswer::Done(done) => last_line(*done),
            VdeAnswer::Told(text, done) => format!("0000 DATA END WITH '.'\n{text}.\n{}", last_line(*done)),
            VdeAnswer::Loaded(text, done) => format!("{text}{}", last_line(*done)),
        }
    }
}

impl From<Result<(), VdeError>> for VdeAnswer {
    fn from(done: Result<(), VdeError>) -> VdeAnswer {
        VdeAnswer::Done(done)
    }
}

fn last_line(done: Result<(), VdeError>) -> String {
    let (number, words) = done.err().map_or((0, "Success"), VdeError::parts);
    format!("1{number:03} {words}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: answers are those of VDE, byte for byte: a number with three digits behind a 1, data up to a line
    /// with a dot.
    #[test]
    fn answers_are_those_of_vde() {
        assert_eq!(VdeAnswer::from(Ok(())).lines(), "1000 Success\n");
        assert_eq!(VdeAnswer::from(Err(VdeError::Exists)).lines(), "1017 File exists\n");
        assert_eq!(VdeAnswer::from(Err(VdeError::NotFound)).lines(), "1006 No such device or address\n");
        let told = VdeAnswer::told(Ok("VLAN 0000\n".to_owned()));
        assert_eq!(told.lines(), "0000 DATA END WITH '.'\nVLAN 0000\n.\n1000 Success\n");
        let none = VdeAnswer::told(Err(VdeError::Invalid));
        assert_eq!(none.lines(), "0000 DATA END WITH '.'\n.\n1022 Invalid argument\n");
        assert_eq!(VdeAnswer::Nothing.lines(), "");
    }

    /// Objective: numbers and words are the system's.
    #[test]
    fn numbers_and_words_are_the_systems() {
        use VdeError::*;
        for error in [NoFile, NoAnswer, NotFound, Exists, NoAddress, Invalid, Full, NoCommand, Loop, Unsupported, InUse]
        {
            let (number, words) = error.parts();
            let system = std::io::Error::from_raw_os_error(number.into()).to_string();
            assert!(system.starts_with(words), "{number}: {system}");
        }
    }
}
