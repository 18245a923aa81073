//! The systemd unit of a daemon. If a unit runs the daemon, systemd must start the successor, too, so that the unit's
//! sandbox, limits, watchdog and supervision apply to the successor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::CliError;

/// A service of the system's systemd or of a user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemdUnit {
    /// The unit's name.
    pub name: String,
    /// The user whose systemd instance runs the service; `None` if the system's instance runs it.
    uid: Option<u32>,
}

impl SystemdUnit {
    /// Returns the service whose main process is `pid`; `None` if `pid` is not the main process of a service.
    pub fn of(pid: u32) -> Option<SystemdUnit> {
        let unit = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?.lines().find_map(SystemdUnit::in_group)?;
        (unit.property("MainPID")? == pid.to_string()).then_some(unit)
    }

    /// Returns the service that is named in a line of /proc/PID/cgroup: `HIERARCHY:CONTROLLERS:PATH`.
    fn in_group(line: &str) -> Option<SystemdUnit> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let name = path.rsplit('/').next().filter(|name| name.ends_with(".service"))?;
        let user =
            || path.split('/').find_map(|part| part.strip_prefix("user@")?.strip_suffix(".service")?.parse().ok());
        ["", "name=systemd"].contains(&controllers).then(|| SystemdUnit { name: name.to_owned(), uid: user() })
    }

    fn systemctl(&self) -> Command {
        let mut command = Command::new("systemctl");
        command.args(self.uid.map(|_| "--user")).stdin(Stdio::null());
        command
    }

    fn property(&self, name: &str) -> Option<String> {
        let said =
            self.systemctl().args(["show", "--value", "--property", name, &self.name]).stderr(Stdio::null()).output();
        let said = said.ok().filter(|said| said.status.success())?;
        Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// Returns two paths, if known: of the program that the unit starts, and of the program that the process runs.
    fn programs(&self, pid: u32) -> impl Iterator<Item = PathBuf> {
        let starts = self.property("ExecStart").and_then(|all| {
            let path = all.split("path=").nth(1)?.split(" ;").next()?;
            Some(PathBuf::from(path))
        });
        let runs = fs::read_link(format!("/proc/{pid}/exe")).ok().map(|path| {
            let path = path.to_string_lossy();
            // The kernel adds this suffix if the running program's file has been removed or replaced.
            PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path))
        });
        starts.into_iter().chain(runs)
    }

    /// Makes systemd restart the service, if the unit starts `program`. During the restart, systemd keeps the daemon's
    /// ports in its descriptor store.
    ///
    /// # Errors
    /// The unit starts another program, or systemd refuses.
    pub fn restart(&self, pid: u32, program: &Path) -> Result<(), CliError> {
        let wanted = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let is_wanted = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == wanted);
        if !self.programs(pid).any(|path| is_wanted(&path)) {
            let starts = self.programs(pid).next().unwrap_or_default();
            let what = format!("{} starts {}, not {}", self.name, starts.display(), wanted.display());
            return Err(CliError::failed(what, "install this version there, or name it in ExecStart= of the unit"));
        }
        let done = self.systemctl().arg("restart").arg(&self.name).stdout(Stdio::null()).output();
        let said = done.map_err(|e| CliError::failed(format!("cannot start systemctl: {e}"), ""))?;
        if said.status.success() {
            return Ok(());
        }
        let what = format!("systemd did not restart {}: {}", self.name, String::from_utf8_lossy(&said.stderr).trim());
        let journal = self.uid.map_or("-u", |_| "--user-unit");
        Err(CliError::failed(what, format!("see `journalctl {journal} {}`", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the service is found in either version of control groups, for the system's systemd and for a user's;
    /// a login session is not taken for a service.
    #[test]
    fn the_service_is_found_in_either_version_of_groups() {
        let unit = |name: &str, uid| Some(SystemdUnit { name: name.to_owned(), uid });
        assert_eq!(SystemdUnit::in_group("0::/system.slice/netvale.service"), unit("netvale.service", None));
        assert_eq!(
            SystemdUnit::in_group("1:name=systemd:/system.slice/netvale.service"),
            unit("netvale.service", None)
        );
        let user = "0::/user.slice/user-7.slice/user@7.service/app.slice/netvale.service";
        assert_eq!(SystemdUnit::in_group(user), unit("netvale.service", Some(7)));
        for other in
            ["5:cpu,cpuacct:/system.slice/netvale.service", "0::/user.slice/user-7.slice/session-1.scope", "0::/", ""]
        {
            assert_eq!(SystemdUnit::in_group(other), None, "{other}");
        }
    }
}
