//! Commands on the switch as a whole.

use std::fmt::Write;
use std::path::Path;

use super::super::answers::{VdeAnswer, VdeError};
use super::super::console::VdeConsole;
use super::super::usage;
use super::ROWS;

/// The column headings of `debug/list`, whose list is always empty.
pub(super) const EVENTS: &str = "CATEGORY               TAG STATUS HELP\n------------           --- ------ ----\n";
/// The column headings of `plugin/list`, whose list is always empty.
pub(super) const PLUGINS: &str = "NAME                   HELP\n------------           ----\n";
/// Maximum nesting depth of `load`.
const MOST_LOADING: usize = 8;
/// Maximum size of a file of commands in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Returns an empty list with these column headings, and the error that VDE returns for an empty list.
pub(super) fn none_of(columns: &str) -> VdeAnswer {
    VdeAnswer::Told(columns.to_owned(), Err(VdeError::NoFile))
}

/// `help`: lists the commands whose paths start with `beginning`.
pub(super) fn help(_: &mut VdeConsole, beginning: &str) -> Result<String, VdeError> {
    let heads = ["COMMAND PATH       SYNTAX          HELP\n", "------------       --------------  ------------\n"];
    let mut text = heads.concat();
    for row in ROWS.iter().filter(|row| row.path.starts_with(beginning)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<18} {:<15} {}", row.path, row.syntax, row.help);
    }
    Ok(text)
}

/// `showinfo`: prints version, process, management socket and run directory.
pub(super) fn show_all(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    let facts = &console.facts;
    let uptime = facts.begun.elapsed().as_secs();
    let pid = std::process::id();
    let mut text = format!("{}\npid {pid} MAC {} uptime {uptime}\n", usage::banner(), facts.mac);
    if let Some((path, mode)) = &facts.mgmt {
        let _ = writeln!(text, "mgmt {} perm 0{mode:03o}", path.display());
    }
    let _ = writeln!(text, "netvale --run-dir {} list", facts.run_dir.display());
    Ok(text)
}

/// `ds/showinfo`: prints folder and mode of the control socket.
pub(super) fn show_sockets(console: &mut VdeConsole, _: &str) -> Result<String, VdeError> {
    let facts = &console.facts;
    Ok(format!("ctl dir {}\nstd mode 0{:03o}\n", facts.folder.display(), facts.mode))
}

/// `load`: runs the commands in a file.
pub(super) fn load(console: &mut VdeConsole, path: &str) -> VdeAnswer {
    if console.loading >= MOST_LOADING {
        return VdeAnswer::Done(Err(VdeError::Loop));
    }
    let Some(file) = read(Path::new(path)) else { return VdeAnswer::Done(Err(VdeError::NoFile)) };
    console.loading += 1;
    let mut text = String::new();
    let mut ends = None;
    for line in file.lines().filter(|line| !line.trim().is_empty()) {
        let answer = super::run(console, line);
        let _ = write!(text, "vde[{path}]: {line}\n{}", answer.lines());
        if matches!(answer, VdeAnswer::Logout | VdeAnswer::Shutdown) {
            ends = Some(answer);
            break;
        }
    }
    console.loading -= 1;
    ends.unwrap_or(VdeAnswer::Loaded(text, Ok(())))
}

/// Reads a file of commands. Returns `None` for a FIFO or device, which could block the console, and for a file that is
/// too large or cannot be read.
fn read(path: &Path) -> Option<String> {
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES);
    let bytes = is_file.then(|| std::fs::read(path).ok())??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
