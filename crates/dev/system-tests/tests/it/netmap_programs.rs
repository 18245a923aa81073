//! C programs in netmap's style: linked to libnetmap, and unmodified programs under `netvale run`.
//!
//! Objective of each: see the top of its source in crates/programs/capi/tests/c.

use crate::common;
use crate::common::libs;
use crate::common::up;

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use common::stderr;
use rustix::process::Signal;
use up::{Guarded, Up};

/// The arguments of a program.
enum Ports {
    /// Two ports of a switch, then the two ends of a pipe.
    Any,
    /// Two ports of a switch.
    Switched,
    /// One port.
    One,
    /// A switch.
    Switch,
    /// The name of a pipe, without the suffix that selects one of its ends.
    Pipe,
}

impl Ports {
    fn arguments(&self) -> Vec<Vec<&'static str>> {
        match self {
            Ports::Any => vec![vec!["vale0:a", "vale0:b"], vec!["p{1", "p}1"]],
            Ports::Switched => vec![vec!["vale0:a", "vale0:b"]],
            Ports::One => vec![vec!["vale0:a"]],
            Ports::Switch => vec![vec!["vale0"]],
            Ports::Pipe => vec![vec!["netmap:p"]],
        }
    }
}

fn succeed(command: Command, what: &str) {
    let output = libs::finish(command);
    // A program that lacks a privilege ends with this status, and names the privilege.
    if output.status.code() == Some(77) {
        eprint!("{}", stderr(&output));
        return;
    }
    assert!(output.status.success(), "{what}: {} {}", output.status, stderr(&output));
}

/// Runs a program linked to libnetmap, without `netvale run`.
fn linked(name: &str, ports: &Ports) {
    let up = Up::start(&[]);
    let program = libs::compile(name, up.dir());
    for arguments in ports.arguments() {
        let mut command = Command::new(&program);
        command.args(&arguments).env("NETVALE_RUN_DIR", up.dir());
        succeed(command, &format!("{name} {arguments:?}"));
    }
    check_clean(&up);
}

/// Runs a program compiled against the headers alone, under `netvale run`.
fn preloaded(name: &str, ports: &Ports) {
    let up = Up::start(&[]);
    let program = up.path(name);
    libs::compile_alone(&libs::source(name), &program, &["-lpthread"]);
    for arguments in ports.arguments() {
        succeed(under_run(&up, &program, &arguments), &format!("{name} {arguments:?}"));
    }
    check_clean(&up);
}

fn under_run(up: &Up, program: &Path, arguments: &[&str]) -> Command {
    let mut command = up.preload();
    command.arg(program).args(arguments);
    command
}

/// Asserts that nothing of a program is left in the daemon.
fn check_clean(up: &Up) {
    up::until("the programs' ports are gone", || {
        let list: serde_json::Value = serde_json::from_slice(&up.run("list --json").stdout).expect("JSON");
        list["ports"].as_array().is_some_and(Vec::is_empty)
    });
}

macro_rules! programs {
    (both: $($both:ident($both_ports:ident)),+; linked: $($linked:ident($ports:ident)),+) => {
        programs!(@mod linked: $($both($both_ports),)+ $($linked($ports),)+);
        programs!(@mod preloaded: $($both($both_ports),)+);
    };
    (@mod $how:ident: $($name:ident($ports:ident),)+) => {
        mod $how {
            use super::Ports;
            $(
                #[test]
                fn $name() {
                    super::$how(stringify!($name), &Ports::$ports);
                }
            )+
        }
    };
}

programs!(
both:
    arrives(Any),
    bad_ring(Switched),
    busy_sync(Any),
    close_during_poll(One),
    control_api(Switch),
    dispatch(Any),
    epoll_loop(Any),
    exec_open(Any),
    extmem_defaults(Switch),
    extmem_file(Switch),
    extra_bufs(Switched),
    fork_after_open(Any),
    indirect(Switched),
    kloop(Switched),
    legacy_api(Switch),
    monitor_kinds(Any),
    monitor_order(Any),
    monitor_rings(Switch),
    morefrag(Switched),
    no_read_write(One),
    offsets(Switched),
    options_list(Switch),
    packet_room(Pipe),
    packet_socket(Switched),
    pass_fd(Any),
    persistent(Switch),
    persistent_joint(Switch),
    poll_loop(Any),
    ring_sizes(Switch),
    select_loop(Any),
    timestamps(Switched),
    unrelated(One),
    ways_to_wait(Any);
linked:
    extmem_nmport(Switch),
    monitors(Switched),
    nmport_api(Switch),
    own_loop(Any),
    pipe_room(Pipe),
    pipes(Pipe),
    thread_per_ring(Switched)
);

/// Objective: the archive has everything for a program that is linked without the shared library.
#[test]
fn the_archive_links_without_our_shared_library() {
    let up = Up::start(&[]);
    let program = up.path("poll_loop");
    let archive = netvale_system_tests::programs().join("libnetmap.a");
    let archive = archive.to_str().expect("text");
    libs::compile_alone(&libs::source("poll_loop"), &program, &[archive, "-lpthread", "-ldl", "-lm", "-lgcc_s"]);
    let mut command = Command::new(&program);
    command.args(["vale0:a", "vale0:b"]).env("NETVALE_RUN_DIR", up.dir());
    succeed(command, "poll_loop with libnetmap.a");
    check_clean(&up);
}

/// Objective: libpcap's API works call by call in a program that was compiled for the system's libpcap.
#[test]
fn the_pcap_api_works_call_by_call() {
    let up = Up::start(&[]);
    let source = netvale_system_tests::root().join("crates/programs/pcap/tests/c/pcap_api.c");
    libs::compile_alone(&source, &up.path("pcap_api"), &["-lpcap"]);
    let folder = up.dir().to_str().expect("text");
    succeed(under_run(&up, &up.path("pcap_api"), &["vale0:a", "vale0:b", folder]), "pcap_api");
    check_clean(&up);
}

/// Objective: libpcap's errors for a full port are right, blocking and non-blocking, and poll, select and epoll report
/// room on the selectable descriptor.
#[test]
fn libpcap_tells_of_a_full_port_and_its_room() {
    let up = Up::start(&[]);
    let source = netvale_system_tests::root().join("crates/programs/pcap/tests/c/pcap_room.c");
    libs::compile_alone(&source, &up.path("pcap_room"), &["-lpcap", "-lpthread"]);
    for ends in [["netmap:p{1", "netmap:p}1"], ["netmap:p}1", "netmap:p{1"]] {
        succeed(under_run(&up, &up.path("pcap_room"), &ends), "pcap_room");
    }
    check_clean(&up);
}

/// Objective: a sender whose daemon was killed gets an error from libpcap, packet sockets and poll; a program that
/// reads a port's packet socket, on which no frames arrive, gets one note about it.
#[test]
fn a_sender_left_alone_is_told_so() {
    for source in ["crates/programs/pcap/tests/c/pcap_alone.c", "crates/programs/capi/tests/c/packet_alone.c"] {
        let up = Up::start(&[]);
        let program = up.path("alone");
        let libraries: &[&str] = if source.contains("pcap") { &["-lpcap"] } else { &[] };
        libs::compile_alone(&netvale_system_tests::root().join(source), &program, libraries);
        let mut command = under_run(&up, &program, &["vale0:a", &up.pid().to_string()]);
        command.env("NETVALE_VERBOSE", "");
        let output = libs::finish(command);
        if output.status.code() == Some(77) {
            eprint!("{}", stderr(&output));
            continue;
        }
        let said = stderr(&output);
        assert!(output.status.success(), "{source}: {} {said}", output.status);
        let told = said.matches("it can send, but receives nothing").count();
        assert_eq!(told, usize::from(source.contains("packet")), "{said}");
    }
}

/// Objective: every offset, size and number of the binary interface is the same as in netmap, and the headers compile
/// as C++, too.
#[test]
fn headers_match_the_binary_interface_of_netmap() {
    let dir = tempfile::tempdir().expect("a folder");
    libs::compile_alone(&libs::source("abi_asserts"), &dir.path().join("asserts"), &[]);
    let program = "#define NETMAP_WITH_LIBS\n#include <net/netmap_user.h>\n#include <libnetmap.h>\n\
                   int main() { return nm_open(\"x\", nullptr, 0, nullptr) ? 1 : 0; }\n";
    std::fs::write(dir.path().join("x.cc"), program).expect("a file");
    let output = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(netvale_system_tests::root().join("crates/programs/capi/include"))
        .arg(dir.path().join("x.cc"))
        .output()
        .expect("the C++ compiler runs");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Objective: a program that polls survives the daemon's end and the start of another daemon.
#[test]
fn a_program_that_polls_survives_the_daemons_end() {
    for is_preloaded in [false, true] {
        let up = Up::start(&[]);
        let mut command = if is_preloaded {
            libs::compile_alone(&libs::source("daemon_ends"), &up.path("daemon_ends"), &[]);
            under_run(&up, &up.path("daemon_ends"), &["vale0:a"])
        } else {
            let mut command = Command::new(libs::compile("daemon_ends", up.dir()));
            command.arg("vale0:a").env("NETVALE_RUN_DIR", up.dir());
            command
        };
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Guarded(piped.spawn().expect("the program starts").into());
        let mut lines = program.0.lines().expect("its output");
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line, "open\n");
        up.restart(Signal::KILL);
        program.0.child().stdin.take().expect("its input").write_all(b"\n").expect("it listens");
        let output = program.output();
        assert!(output.status.success(), "preloaded {is_preloaded}: {}", stderr(&output));
    }
}

/// Objective: without a daemon, /dev/netmap does not exist, as without netmap's module; `netvale run` warns beforehand.
#[test]
fn dev_netmap_is_not_there_without_a_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("timestamps");
    libs::compile_alone(&libs::source("timestamps"), &program, &["-lpthread"]);
    let mut command = common::netvale();
    command.arg("--run-dir").arg(dir.path()).args(["run", "--lib-dir"]).arg(netvale_system_tests::programs());
    command.arg("--").arg(&program).args(["vale0:a", "vale0:b"]);
    let output = libs::finish(command);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("no netvale daemon runs in") && said.contains("No such file or directory"), "{said}");
}

/// Objective: programs that preloading cannot affect are refused with a reason; a library that is already preloaded
/// stays.
#[test]
fn run_refuses_what_it_cannot_reach() {
    let up = Up::start(&[]);
    let source = up.path("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    libs::compile_alone(&source, &up.path("static"), &["-static"]);
    let output = libs::finish(under_run(&up, &up.path("static"), &[]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));

    let output = libs::finish(under_run(&up, Path::new("no-such-program"), &[]));
    assert!(stderr(&output).contains("program no-such-program does not exist"), "{}", stderr(&output));

    let mut command = under_run(&up, Path::new("sh"), &["-c", "echo $LD_PRELOAD $NETVALE_RUN_DIR; exit 7"]);
    libs::compile_alone(&source, &up.path("other.so"), &["-shared", "-fPIC"]);
    command.env("LD_PRELOAD", up.path("other.so"));
    let output = libs::finish(command);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, second) = said.split_once(':').expect("two libraries");
    assert!(first.ends_with("libnetmap.so") && second.contains("other.so"), "{said}");
    assert!(said.contains(&up.dir().display().to_string()), "{said}");
}
