//! The answers to commands: lines of data, then a line with a status number and its text. The status number, which
//! clients parse, is 1000 plus the errno. Numbers and texts are the same as in VDE.

/// The reason why a command is refused, as VDE reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VdeError {
    /// No such file (ENOENT).
    NoFile,
    /// The daemon does not answer (EIO).
    NoAnswer,
    /// No such port or VLAN (ENXIO).
    NotFound,
    /// The port or VLAN exists already (EEXIST).
    Exists,
    /// No such Ethernet address in the switch's table (ENODEV).
    NoAddress,
    /// An argument is missing or invalid (EINVAL).
    Invalid,
    /// All port numbers are in use (ENOSPC).
    Full,
    /// No such command (ENOSYS).
    NoCommand,
    /// `load` commands in loaded files are nested too deeply (ELOOP).
    Loop,
    /// This switch does not support the command, although VDE does (EOPNOTSUPP).
    Unsupported,
    /// The port or VLAN is in use (EADDRINUSE).
    InUse,
}

impl VdeError {
    /// Returns the errno, and the text that strerror(3) returns for it.
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
    /// The answer to an empty line.
    Nothing,
    /// The status of a command without data.
    Done(Result<(), VdeError>),
    /// The data and the status of a command that returns data. Each line of the data ends with a newline.
    Told(String, Result<(), VdeError>),
    /// The answers to the commands of a file, and the status of the `load` command itself.
    Loaded(String, Result<(), VdeError>),
    /// No answer: the session ends.
    Logout,
    /// No answer: the switch ends.
    Shutdown,
}

impl VdeAnswer {
    /// Creates the answer to a command that returns data. If the command has failed, the data is empty.
    pub fn told(told: Result<String, VdeError>) -> VdeAnswer {
        match told {
            Ok(text) => VdeAnswer::Told(text, Ok(())),
            Err(why) => VdeAnswer::Told(String::new(), Err(why)),
        }
    }

    /// Formats the answer, without the empty line that a session appends.
    pub fn lines(&self) -> String {
        match self {
            VdeAnswer::Nothing | VdeAnswer::Logout | VdeAnswer::Shutdown => String::new(),
            VdeAnswer::Done(done) => last_line(*done),
            VdeAnswer::Told(text, done) => format!("0000 DATA END WITH '.'\n{text}.\n{}", last_line(*done)),
            VdeAnswer::Loaded(text, done) => format!("{text}{}", last_line(*done)),
        }
    }
}

fn last_line(done: Result<(), VdeError>) -> String {
    let (number, words) = done.err().map_or((0, "Success"), VdeError::parts);
    format!("1{number:03} {words}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: answers equal those of VDE, byte for byte: the status number is a 1 followed by three digits, and a
    /// line with a dot ends the data.
    #[test]
    fn answers_are_those_of_vde() {
        assert_eq!(VdeAnswer::Done(Ok(())).lines(), "1000 Success\n");
        assert_eq!(VdeAnswer::Done(Err(VdeError::Exists)).lines(), "1017 File exists\n");
        assert_eq!(VdeAnswer::Done(Err(VdeError::NotFound)).lines(), "1006 No such device or address\n");
        let told = VdeAnswer::told(Ok("VLAN 0000\n".to_owned()));
        assert_eq!(told.lines(), "0000 DATA END WITH '.'\nVLAN 0000\n.\n1000 Success\n");
        let none = VdeAnswer::told(Err(VdeError::Invalid));
        assert_eq!(none.lines(), "0000 DATA END WITH '.'\n.\n1022 Invalid argument\n");
        assert_eq!(VdeAnswer::Nothing.lines(), "");
    }

    /// Objective: the numbers and texts of errors are the same as in the system's strerror(3).
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
