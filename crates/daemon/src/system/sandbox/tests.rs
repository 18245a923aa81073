//! Attempts every operation that the documentation page lists as denied, from inside the sandbox: in the thread that
//! entered it, and in a thread that this thread started.

mod attempts;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use seccompiler::SeccompRule;

use attempts::{attempts, landlock};

const PAGE: &str = include_str!("../../../../../docs/reference/security.md");
const FOLDER: &str = "NETVALE_TEST_FOLDER";
const OUTSIDE: &str = "NETVALE_TEST_OUTSIDE";
/// An arbitrary ID of the process for which the rules are made.
const OWN: u32 = 4711;

/// One row of the page's table: an operation, the mechanism that denies it, and the error.
struct Claim {
    what: String,
    by: String,
    error: Errno,
}

/// The files and processes around a sandbox.
struct World {
    /// A folder that the sandbox includes; `outside` is a folder that the sandbox excludes.
    folder: PathBuf,
    outside: PathBuf,
    /// The name of a listening abstract UNIX socket.
    name: String,
    /// A process outside the sandbox.
    parent: u64,
}

fn claims() -> Vec<Claim> {
    let (_, section) = PAGE.split_once("## The sandbox").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let claims = |row: &str| -> Vec<Claim> {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [what, by, error] = &cells[..] else { panic!("{row}") };
        let error = match error.as_str() {
            "EPERM" => Errno::PERM,
            "EACCES" => Errno::ACCESS,
            "ENOSYS" => Errno::NOSYS,
            other => panic!("{other}"),
        };
        what.split(", ").map(|what| Claim { what: what.to_owned(), by: by.clone(), error }).collect()
    };
    rows.flat_map(claims).collect()
}

/// Whether this kernel can deny the operation.
fn can_be_denied(claim: &Claim) -> bool {
    let needed = claim.by.strip_prefix("Landlock ").map_or(0, |version| version.parse().expect("a version"));
    let can = landlock() >= needed;
    if !can {
        netvale_harness::skip(&format!("{}: {} takes a newer kernel", claim.what, claim.by));
    }
    can
}

/// Objective: the attempts match the page's table exactly.
#[test]
fn every_line_of_the_page_is_tried() {
    let claimed: BTreeSet<_> = claims().into_iter().map(|claim| claim.what).collect();
    let tried: BTreeSet<_> = attempts().into_iter().map(|attempt| attempt.0.to_owned()).collect();
    assert_eq!(claimed, tried);
}

/// The code of the process that [`every_denial_of_the_page_holds_inside`] starts.
#[test]
#[ignore = "a role of another test"]
fn inside() {
    let variable = |name| std::env::var(name);
    let (Ok(folder), Ok(outside)) = (variable(FOLDER), variable(OUTSIDE)) else { return };
    let world = World {
        folder: folder.into(),
        name: outside.clone(),
        outside: outside.into(),
        parent: std::os::unix::process::parent_id().into(),
    };
    let claims: Vec<_> = claims().into_iter().filter(can_be_denied).collect();
    super::enter(&world.folder, &[], None, &crate::ports::kernel_needs()).unwrap();
    let mut wrong = world.contradicts(&claims, "the first thread");
    wrong.extend(std::thread::scope(|s| s.spawn(|| world.contradicts(&claims, "another thread")).join().unwrap()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.has_what_it_needs();
}

impl World {
    /// Returns the claims that do not hold.
    fn contradicts(&self, claims: &[Claim], thread: &str) -> Vec<String> {
        let attempts = attempts();
        let outcome = |claim: &Claim| {
            let (_, attempt) = attempts.iter().find(|(what, _)| *what == claim.what).expect("it is tried");
            let outcome = attempt(self);
            (outcome != Err(claim.error)).then(|| format!("{thread}: {}: {outcome:?}, not {}", claim.what, claim.error))
        };
        claims.iter().filter_map(outcome).collect()
    }

    fn has_what_it_needs(&self) {
        let file = self.folder.join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
        let socket = self.folder.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.as_raw_fd() > 0);
        std::fs::remove_file(socket).unwrap();
        std::fs::remove_file(file).unwrap();
    }
}

/// Returns a line for each permitted call, or for each list of its permitted arguments.
fn allowed() -> String {
    let written = |(call, rules): (i64, Vec<SeccompRule>)| -> Vec<String> {
        let one = |rule: &SeccompRule| {
            let text = format!("{call} {rule:?}").replace("SeccompRule { conditions: [", "").replace("] }", "");
            let text = text.replace("SeccompCondition { arg_index: ", "argument ").replace("), value: ", " = ");
            text.replace(", arg_len: Qword, operator: MaskedEq(", " & ").replace(" }", "")
        };
        if rules.is_empty() { vec![call.to_string()] } else { rules.iter().map(one).collect() }
    };
    let all: BTreeSet<_> =
        super::rules(OWN, &crate::ports::kernel_needs()).unwrap().into_iter().flat_map(written).collect();
    all.into_iter().map(|line| line + "\n").collect()
}

/// Objective: the permitted calls, by their numbers on this processor, and their arguments match the file, regardless
/// of how they are divided between the daemon and kinds of ports; `UPDATE=1` writes the file.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_same_calls_are_allowed() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/sandbox/tests/allowed.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, allowed()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), allowed());
}

mod as_root {
    use super::*;

    /// Objective: every denial of the page holds, with its error, in both threads; sockets and files in the run
    /// directory stay permitted.
    #[test]
    fn every_denial_of_the_page_holds_inside() {
        if !rustix::process::geteuid().is_root() {
            netvale_harness::skip("some attempts take root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        for file in [folder.path().join("others"), outside.path().join("file")] {
            std::fs::write(&file, "x").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        chown(folder.path().join("others"), Some(1), Some(1)).unwrap();
        let name = outside.path().display().to_string();
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "system::sandbox::tests::inside", "--ignored", "--nocapture"]);
        let output = command.env(FOLDER, folder.path()).env(OUTSIDE, outside.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
