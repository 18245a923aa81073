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
        CliError::failed(format!("there is no program {}", name.display()), "check its name, or give its path")
    })
}

/// The kinds of files, as the dynamic loader sees them.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Dynamically linked: libraries can be preloaded.
    Dynamic,
    /// Dynamically linked Go: its own code makes system calls directly.
    DynamicGo,
    /// Statically linked.
    Static,
    /// A script, with its interpreter.
    Script(PathBuf),
    /// Another kind of file; the kernel decides.
    Unknown,
}

/// Refuses a program that preloaded libraries cannot reach, and warns of one that they reach only in part.
///
/// # Errors
/// The program is statically linked.
pub fn check(path: &Path) -> Result<(), CliError> {
    let mut target = path.to_path_buf();
    // A script's interpreter may be a script.
    for _ in 0..4 {
        match kind(&target) {
            Kind::Script(interpreter) => target = interpreter,
            Kind::Static => {
                return Err(CliError::failed(
                    format!("{} is statically linked: no library can be put before its own", target.display()),
                    "run a dynamically linked build of it, or link it to libnetmap (see `pkg-config libnetmap`)",
                ));
            }
            Kind::DynamicGo => {
                netvale_control::note!(
                    "netvale: {} is written in Go: what it calls through cgo works, libpcap and /dev/netmap; what its own code opens is the system's",
                    target.display()
                );
                break;
            }
            Kind::Dynamic | Kind::Unknown => break,
        }
    }
    if is_privileged(&target) {
        netvale_control::note!(
            "netvale: {} has the set-user-ID or set-group-ID bit, or capabilities: the loader ignores netvale's libraries in it",
            target.display()
        );
    }
    Ok(())
}

fn kind(path: &Path) -> Kind {
    let mut start = [0u8; 256];
    let Ok(n) = std::fs::File::open(path).and_then(|mut f| f.read(&mut start)) else { return Kind::Unknown };
    if let Some(line) = start[..n].strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line).lines().next().unwrap_or("").trim().to_owned();
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or("");
        let is_env = first.ends_with("/env");
        let by_env = words.find(|w| is_env && !w.starts_with('-')).and_then(|w| find(OsStr::new(w)).ok());
        return Kind::Script(by_env.unwrap_or_else(|| PathBuf::from(first)));
    }
    std::fs::read(path).map_or(Kind::Unknown, |bytes| elf_kind(&bytes))
}

fn elf_kind(bytes: &[u8]) -> Kind {
    let Ok(elf) = ElfBytes::<AnyEndian>::minimal_parse(bytes) else { return Kind::Unknown };
    let interpreted = elf.segments().is_some_and(|s| s.iter().any(|segment| segment.p_type == PT_INTERP));
    let go = elf.section_header_by_name(".go.buildinfo").ok().flatten().is_some();
    match (interpreted, go) {
        (true, true) => Kind::DynamicGo,
        (true, false) => Kind::Dynamic,
        (false, _) => Kind::Static,
    }
}

/// Whether the kernel runs it with higher privileges, so that the loader ignores preloads.
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
    fn kinds() {
        assert_eq!(kind(Path::new("/bin/sh")), Kind::Dynamic);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/usr/bin/env -S sh -e\n").unwrap();
        assert!(matches!(kind(&script), Kind::Script(p) if p.ends_with("sh")));
        std::fs::write(&script, "#! /bin/sh\n").unwrap();
        assert_eq!(kind(&script), Kind::Script("/bin/sh".into()));
        std::fs::write(&script, "words").unwrap();
        assert_eq!(kind(&script), Kind::Unknown);
        assert!(find(OsStr::new("no such program")).is_err());
        // An ELF header without segments: nothing requests the loader.
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        header.resize(64, 0);
        header[20] = 1;
        header[16] = 2;
        header[52] = 64;
        assert_eq!(elf_kind(&header), Kind::Static);
    }
}
