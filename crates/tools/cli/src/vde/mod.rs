//! The drop-in for `vde_switch`: this program, called by that name.
//!
//! VDE (Virtual Distributed Ethernet) calls its clients *plugs*. A *console* takes VDE's options and management
//! commands. The switch itself is in a separate daemon, `netvale up`, with one `vde:` port. The console is an ordinary
//! client that controls the daemon through the control protocol.
//!
//! ```text
//!  standard input ──┐                                            control
//!  --mgmt's socket ─┴─► sessions ─► commands ─► VLANs and ports ─────────► netvale up ◄──► plugs
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | the command line, as getopt_long_only(3) reads it |
//! | `place` | the folder of the sockets, and the daemon's run directory |
//! | `background` | `--daemon` |
//! | `switch` | a client of the daemon: its ports, counters and addresses |
//! | [`vlans`] | VDE's VLANs, and the port policies that implement them |
//! | [`answers`] | the answers to commands |
//! | [`words`] | parses a command's words and numbers |
//! | `console` | the state that commands change |
//! | `commands` | the table of commands |
//! | `sessions` | standard input, and connections to the management socket |
//! | `management` | the management socket |
//! | `serve` | the event loop: waits for commands, connections and signals |
//! | `usage` | help and version |

pub mod answers;
mod background;
mod commands;
mod console;
mod management;
pub mod options;
mod place;
mod serve;
mod sessions;
mod switch;
mod usage;
pub mod vlans;
pub mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use options::{AskedOf, VdeOptions};

/// The name under which this program acts as VDE's switch.
pub const PROGRAM: &str = "vde_switch";
/// The VDE release with which this program is compatible. Clients parse the release from the banner.
const RELEASE: &str = "2.3.2";
/// The exit status of a switch that cannot start or that fails.
const CANNOT_START: u8 = 255;

/// The reason why a switch cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VdeFailure(pub String);

impl VdeFailure {
    /// Returns a function that turns an I/O error into a failure of the step `what`.
    fn step(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> VdeFailure {
        move |why| VdeFailure(format!("{what}: {why}"))
    }
}

impl From<crate::CliError> for VdeFailure {
    fn from(why: crate::CliError) -> VdeFailure {
        VdeFailure(format!("{why}\n  {}", why.next()))
    }
}

/// Runs the program with the arguments `words`, which exclude the program's name.
#[must_use]
pub fn main(words: &[OsString]) -> ExitCode {
    match options::read(words) {
        Ok(AskedOf::Help) => print(usage::text()),
        Ok(AskedOf::Version) => print(usage::version()),
        Ok(AskedOf::Switch(options)) => started(&options, words),
        Err(why) => {
            say(format_args!("{why}\n{PROGRAM} --help lists the options"));
            ExitCode::FAILURE
        }
    }
}

fn started(options: &VdeOptions, words: &[OsString]) -> ExitCode {
    let done = if options.daemon && !background::is_inside() {
        background::start(words)
    } else {
        serve::run(options).map(|()| ExitCode::SUCCESS)
    };
    done.unwrap_or_else(|why| {
        say(&why);
        ExitCode::from(CANNOT_START)
    })
}

fn print(text: impl std::fmt::Display) -> ExitCode {
    // If standard output is closed, the error could not be reported anywhere useful.
    let _ = crate::out::text(text);
    ExitCode::SUCCESS
}

/// Prints a line on standard error.
fn say(what: impl std::fmt::Display) {
    netvale_control::note!("{PROGRAM}: {what}");
}
