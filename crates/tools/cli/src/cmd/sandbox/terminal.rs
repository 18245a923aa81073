//! The terminal's foreground process group, which a command with job control changes and does not always restore.

use std::fs::File;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal, and this process's process group. `None` if this process has no terminal, or if the group is not the
/// terminal's foreground group.
pub(super) struct TerminalGroup(Option<(File, Pid)>);

impl TerminalGroup {
    /// Looks up the terminal of this process, if it has one.
    pub fn of_this_process() -> TerminalGroup {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
        let group = getpgrp();
        TerminalGroup(terminal.filter(|tty| tcgetpgrp(tty).is_ok_and(|found| found == group)).map(|tty| (tty, group)))
    }

    /// Makes this process's group the terminal's foreground group again. SIGTTOU must be blocked, since the kernel
    /// sends this signal to a background group that changes the foreground group.
    pub fn restore(&self) {
        if let Some((terminal, group)) = &self.0
            && tcgetpgrp(terminal).is_ok_and(|found| found != *group)
        {
            let _ = tcsetpgrp(terminal, *group);
        }
    }
}
