//! The command of a daemon's process.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type CommandLine = Box<dyn Fn(&Path) -> Vec<OsString> + Send + Sync>;
type CommandChange = Box<dyn Fn(&Path, &mut Command) + Send + Sync>;

/// Creates the command that starts a daemon in a run directory, once for each process.
pub struct Launch {
    words: CommandLine,
    changes: Vec<CommandChange>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Launch")
    }
}

impl Launch {
    /// Creates a launch from a program and its arguments, which may contain the run directory. The program's output is
    /// discarded.
    pub fn new(words: impl Fn(&Path) -> Vec<OsString> + Send + Sync + 'static) -> Launch {
        let quiet = |_: &Path, command: &mut Command| {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        };
        Launch { words: Box::new(words), changes: vec![Box::new(quiet)] }
    }

    /// Creates the launch of `PROGRAM --run-dir DIR up ARGUMENTS`.
    pub fn up(program: &Path, arguments: &[&str]) -> Launch {
        let program = OsString::from(program);
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let words = move |dir: &Path| {
            let mut words = vec![program.clone(), "--run-dir".into(), dir.into(), "up".into()];
            words.extend_from_slice(&arguments);
            words
        };
        Launch::new(words).and(|_, command| {
            command.env_remove("NETVALE_RUN_DIR").env_remove("XDG_RUNTIME_DIR");
        })
    }

    /// Adds a change to the command.
    #[must_use]
    pub fn and(mut self, change: impl Fn(&Path, &mut Command) + Send + Sync + 'static) -> Launch {
        self.changes.push(Box::new(change));
        self
    }

    /// Appends the daemon's log to `file`.
    #[must_use]
    pub fn log_to(self, file: PathBuf) -> Launch {
        self.and(move |_, command| {
            let log = File::options().create(true).append(true).open(&file);
            command.stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
        })
    }

    /// Sends the daemon's log to this process's standard error.
    #[must_use]
    pub fn loud(self) -> Launch {
        self.and(|_, command| {
            command.stderr(Stdio::inherit());
        })
    }

    /// Returns the command for a run directory.
    pub fn command(&self, run_dir: &Path) -> Command {
        self.command_behind(&[], run_dir)
    }

    /// Returns the command with the words `before` in front of it: the words of another command, which runs this one.
    pub(crate) fn command_behind(&self, before: &[&str], run_dir: &Path) -> Command {
        let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
        words.extend((self.words)(run_dir));
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        self.changes.iter().for_each(|change| change(run_dir, &mut command));
        command
    }
}
