//! The terminal's foreground process group, which a command with job control changes, and cannot always restore.

use std::fs::File;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal and this process's group; `None` if there is no terminal, or the group is not in its foreground.
#[derive(Debug)]
pub(super) struct TerminalGroup(Option<(File, Pid)>);

impl TerminalGroup {
    /// Looks up the terminal of this process, if it has one.
    pub fn of_this_process() -> TerminalGroup {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
        let group = getpgrp();
        TerminalGroup(terminal.filter(|tty| tcgetpgrp(tty).is_ok_and(|found| found == group)).map(|tty| (tty, group)))
    }

    /// Puts this process's group into the foreground again. SIGTTOU must be blocked: the kernel sends it to a
    /// background group that changes the foreground group.
    pub fn restore(&self) {
        if let Some((terminal, group)) = &self.0
            && tcgetpgrp(terminal).is_ok_and(|found| found != *group)
        {
            let _ = tcsetpgrp(terminal, *group);
        }
    }
}
