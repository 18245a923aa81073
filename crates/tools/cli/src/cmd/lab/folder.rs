//! The folder of a running lab: the run directory of the lab's daemon, with the lab's state and the members' output.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netvale_control::dirs;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};

use super::status::LabState;
use crate::{CliContext, CliError};

const LOCK: &str = "lab.lock";
const STATE: &str = "lab.json";
/// File name of the daemon's configuration, which is taken from the lab's file.
const CONFIG: &str = "netvale.toml";
/// Maximum time to wait until a lab has ended.
const ENDING: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(20);

/// A lab's folder, whether or not a lab runs.
pub(super) struct LabFolder {
    pub dir: PathBuf,
}

impl LabFolder {
    /// Returns the folder that `--run-dir` names, or, without this option, the folder next to this user's default run
    /// directory, with the suffix `-lab`.
    pub fn of(ctx: &CliContext) -> LabFolder {
        let beside = || {
            let mut name = dirs::default_run_dir().into_os_string();
            name.push("-lab");
            name.into()
        };
        LabFolder { dir: ctx.run_dir.clone().unwrap_or_else(beside) }
    }

    /// Locks the folder for a new lab. Creates the folder if needed, and removes files that a killed lab left.
    ///
    /// # Errors
    /// A lab already runs in the folder, or the folder cannot be used.
    pub fn take(&self) -> Result<TakenFolder, CliError> {
        let failed = |why: String| CliError::failed(why, "name another folder with --run-dir");
        let is_own = !self.dir.exists() || self.dir.join(LOCK).exists();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(|why| failed(format!("cannot create {}: {why}", self.dir.display())))?;
        if dirs::is_foreign(&self.dir) {
            return Err(failed(format!("{} belongs to another user", self.dir.display())));
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.dir.join(LOCK))
            .map_err(|why| failed(format!("cannot write in {}: {why}", self.dir.display())))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let next = "end it with `netvale lab down`, or name another folder with --run-dir";
            return Err(CliError::failed(format!("a lab runs already in {}", self.dir.display()), next));
        }
        remove_files(&self.dir);
        Ok(TakenFolder { dir: self.dir.clone(), is_own, _lock: lock })
    }

    /// Returns whether a lab runs in the folder. A running lab holds the lock.
    fn is_used(&self) -> bool {
        let lock = File::open(self.dir.join(LOCK)).ok();
        lock.is_some_and(|lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Returns the state of the running lab.
    ///
    /// # Errors
    /// No lab runs, or the lab has not finished starting.
    pub fn state(&self) -> Result<LabState, CliError> {
        let next = "start one with `netvale lab up FILE.toml`, or name its folder with --run-dir";
        let none = || CliError::unreachable(format!("no lab runs in {}", self.dir.display()), next);
        if !self.is_used() {
            return Err(none());
        }
        let text = fs::read(self.dir.join(STATE)).map_err(|_| none())?;
        serde_json::from_slice(&text).map_err(|why| {
            CliError::failed(format!("cannot read {}: {why}", self.dir.join(STATE).display()), "start the lab again")
        })
    }

    /// Ends the running lab, and waits until all its processes have ended and its files are removed.
    ///
    /// # Errors
    /// No lab runs, or the lab does not end in time.
    pub fn end_lab(&self) -> Result<(), CliError> {
        let pid = Pid::from_raw(self.state()?.pid);
        pid.into_iter().for_each(|pid| _ = kill_process(pid, Signal::TERM));
        let begun = Instant::now();
        while self.is_used() {
            if begun.elapsed() > ENDING {
                let what = format!("the lab did not end within {} s", ENDING.as_secs());
                return Err(CliError::failed(what, "see its terminal; SIGKILL ends all its processes"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// The locked folder of the lab that this process runs. Dropping this value removes the lab's files, and the folder,
/// too, unless it existed before the first lab used it.
#[derive(Debug)]
pub(super) struct TakenFolder {
    pub dir: PathBuf,
    is_own: bool,
    _lock: File,
}

impl TakenFolder {
    /// Writes the daemon's configuration, and returns its path; `None` if there is nothing to configure.
    pub fn write_config(&self, text: &str) -> Result<Option<PathBuf>, CliError> {
        let path = self.dir.join(CONFIG);
        if text.trim().is_empty() {
            return Ok(None);
        }
        fs::write(&path, text).map_err(|why| cannot_write(&path, &why))?;
        Ok(Some(path))
    }

    /// Writes the state, which the other commands read.
    pub fn write_state(&self, state: &LabState) -> Result<(), CliError> {
        let path = self.dir.join(STATE);
        let text = serde_json::to_vec(state).unwrap_or_default();
        let interim = path.with_extension("new");
        let written = fs::write(&interim, text).and_then(|()| fs::rename(&interim, &path));
        written.map_err(|why| cannot_write(&path, &why))
    }

    /// Creates the file that receives a member's output. Returns its path and the open file.
    pub fn log(&self, member: &str) -> Result<(PathBuf, File), CliError> {
        let path = self.dir.join(format!("{member}.log"));
        let file = File::create(&path).map_err(|why| cannot_write(&path, &why))?;
        Ok((path, file))
    }
}

fn cannot_write(path: &Path, why: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {why}", path.display()), "name another folder with --run-dir")
}

/// Removes a lab's state, configuration and logs, and the VDE sockets of its members.
fn remove_files(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let extension = path.extension().and_then(|text| text.to_str());
        match (entry.file_name().to_str(), extension) {
            // A VDE socket is a folder. Sockets of other kinds are removed when their ports end.
            (_, Some("sock")) if path.is_dir() => _ = fs::remove_dir_all(path),
            (Some(STATE | CONFIG), _) | (_, Some("log")) => _ = fs::remove_file(path),
            _ => {}
        }
    }
}

impl Drop for TakenFolder {
    fn drop(&mut self) {
        remove_files(&self.dir);
        if self.is_own {
            let _ = fs::remove_dir_all(&self.dir);
        } else {
            let _ = fs::remove_file(self.dir.join(LOCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a folder has at most one lab at a time, and is removed when the lab ends; other files in the user's
    /// own folder stay.
    #[test]
    fn a_folder_is_taken_once_and_left_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let folder = LabFolder { dir: root.path().join("lab") };
        assert!(folder.state().unwrap_err().to_string().starts_with("no lab runs in "));
        let taken = folder.take().unwrap();
        assert!(folder.take().unwrap_err().to_string().starts_with("a lab runs already in "));
        taken.log("a").unwrap();
        drop(taken);
        assert!(!folder.dir.exists());
        let folder = LabFolder { dir: root.path().to_owned() };
        fs::write(root.path().join("kept"), "").unwrap();
        let taken = folder.take().unwrap();
        taken.write_config("workers = 1").unwrap();
        drop(taken);
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
    }
}
