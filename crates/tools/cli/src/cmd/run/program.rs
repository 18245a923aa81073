//! The program to run, and whether preloaded libraries reach it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;

use crate::CliError;

/// Finds a program as a shell would.
///
/// # Errors
/// No program has that name.
pub fn find(name: &OsStr) -> Result<PathBuf, CliError> {
    let executable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let as_path = PathBuf::from(name);
    let found = if name.as_encoded_bytes().contains(&b'/') {
        Some(as_path).filter(executable)
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|d| d.join(name)).find(executable)
    };
    found.ok_or_else(|| {
        CliError::failed(format!("program {} does not exist", name.display()), "check its name, or give its path")
    })
}

/// The kind of an executable file, as the dynamic loader treats it.
#[derive(Debug, PartialEq, Eq)]
enum ProgramKind {
    /// Dynamically linked: libraries can be preloaded.
    Dynamic,
    /// Dynamically linked and written in Go, which makes system calls directly, without the C library.
    DynamicGo,
    /// Statically linked.
    Static,
    /// A script, with the path of its interpreter.
    Script(PathBuf),
    /// Another kind of file, of which the kernel decides whether it can run.
    Unknown,
}

/// Refuses a program that preloaded libraries cannot affect, and warns about a program that they affect only in part.
///
/// # Errors
/// The program is statically linked.
pub fn check(path: &Path) -> Result<(), CliError> {
    let mut target = path.to_path_buf();
    // The interpreter of a script may itself be a script.
    for _ in 0..4 {
        match kind(&target) {
            ProgramKind::Script(interpreter) => target = interpreter,
            ProgramKind::Static => {
                return Err(CliError::failed(
                    format!("{} is statically linked: libraries cannot be preloaded", target.display()),
                    "run a dynamically linked build of it, or link it to libnetmap (see `pkg-config libnetmap`)",
                ));
            }
            ProgramKind::DynamicGo => {
                netvale_control::note!(
                    "netvale: {} is written in Go: its calls through cgo, to libpcap and /dev/netmap, reach netvale; \
                     files that its Go code opens are the system's",
                    target.display()
                );
                break;
            }
            ProgramKind::Dynamic | ProgramKind::Unknown => break,
        }
    }
    if is_privileged(&target) {
        netvale_control::note!(
            "netvale: {} has the set-user-ID or set-group-ID bit, or capabilities: the loader ignores netvale's \
             libraries in it",
            target.display()
        );
    }
    Ok(())
}

fn kind(path: &Path) -> ProgramKind {
    let mut start = [0u8; 256];
    let Ok(n) = std::fs::File::open(path).and_then(|mut f| f.read(&mut start)) else { return ProgramKind::Unknown };
    if let Some(line) = start[..n].strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line).lines().next().unwrap_or("").trim().to_owned();
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or("");
        let is_env = first.ends_with("/env");
        let by_env = words.find(|w| is_env && !w.starts_with('-')).and_then(|w| find(OsStr::new(w)).ok());
        return ProgramKind::Script(by_env.unwrap_or_else(|| PathBuf::from(first)));
    }
    std::fs::read(path).map_or(ProgramKind::Unknown, |bytes| elf_kind(&bytes))
}

fn elf_kind(bytes: &[u8]) -> ProgramKind {
    let Ok(elf) = ElfBytes::<AnyEndian>::minimal_parse(bytes) else { return ProgramKind::Unknown };
    let interpreted = elf.segments().is_some_and(|s| s.iter().any(|segment| segment.p_type == PT_INTERP));
    let go = elf.section_header_by_name(".go.buildinfo").ok().flatten().is_some();
    match (interpreted, go) {
        (true, true) => ProgramKind::DynamicGo,
        (true, false) => ProgramKind::Dynamic,
        (false, _) => ProgramKind::Static,
    }
}

/// Returns whether the kernel runs the program with higher privileges, in which case the loader does not load preloaded
/// libraries.
fn is_privileged(path: &Path) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let set_id = path.metadata().is_ok_and(|m| m.mode() & 0o6000 != 0);
    let mut value = [0u8; 64];
    set_id || rustix::fs::getxattr(path, "security.capability", &mut value).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: programs, scripts and other files are distinguished; a static program is refused with a reason.
    #[test]
    fn kinds_of_programs_are_told_apart() {
        assert_eq!(kind(Path::new("/bin/sh")), ProgramKind::Dynamic);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        assert!(matches!(kind(&script), ProgramKind::Script(p) if p.ends_with("sh")));
        std::fs::write(&script, "#! /bin/sh\n").unwrap();
        assert_eq!(kind(&script), ProgramKind::Script("/bin/sh".into()));
        std::fs::write(&script, "words").unwrap();
        assert_eq!(kind(&script), ProgramKind::Unknown);
        assert!(find(OsStr::new("no such program")).is_err());
        // An ELF header without segments: no loader is requested.
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        header.resize(64, 0);
        header[20] = 1;
        header[16] = 2;
        header[52] = 64;
        assert_eq!(elf_kind(&header), ProgramKind::Static);
    }
}
