//! The drop-in for `gvproxy` (gvisor-tap-vsock): this program, called by that name.
//!
//! gvproxy gives a virtual machine a network without privilege: a switch, addresses, names, the Internet and published
//! ports, with an HTTP interface by which programs change it. Here, the switch is in a daemon that the program starts
//! for itself, and a process `netvale gateway` connects it to the Internet; this program has the options, the HTTP
//! interface and the SSH tunnels.
//!
//! ```text
//!  --listen, --services ─► http ─► api ─┬─► control ─► netvale gateway ◄─► the Internet
//!  port 80 of the gateway ─┘            │                    │
//!  --forward-sock ─► forwards ─► relay ─┴─► dial socket ─────┤
//!  --listen-qemu, -bess, -vfkit ──────────────────────► netvale up ◄─► /connect, --listen-stdio, through framing
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `options` | the command line, as Go's package flag reads it |
//! | `config` | the file of `--config`, and the settings of a network |
//! | `settings` | defaults, and the checks of options and file together |
//! | `endpoint` | addresses such as `unix:///run/a.sock` |
//! | `zones` | zones of names |
//! | `kinds` | guests' sockets as ports of the switch |
//! | `place` | the private folder of a network's sockets |
//! | `network` | the daemon and the gateway, which are processes of their own |
//! | `watch` | guests that come and go, and notifications about them |
//! | `control` | the control socket of the gateway |
//! | `stream` | connections of any kind |
//! | `http` | an HTTP/1.1 server |
//! | `json` | JSON as Go's package encoding/json reads it |
//! | `api` | what the HTTP interface answers |
//! | `exposed` | exposed ports and sockets |
//! | `addresses` | addresses of exposed ports |
//! | `relay` | bytes between two connections, and connections to guests |
//! | `framing` | conversion of frames between Hyperkit's stream and QEMU's stream |
//! | `forwards`, `ssh` | sockets in a guest, by `ssh` |
//! | `serve` | the life of a network |
//! | `log` | messages in the form of gvproxy's |

mod addresses;
mod api;
mod config;
mod control;
mod endpoint;
mod exposed;
mod forwards;
mod framing;
mod http;
mod json;
mod kinds;
mod log;
mod network;
mod options;
mod place;
mod relay;
mod serve;
mod settings;
mod ssh;
mod stream;
mod watch;
mod zones;

use std::ffi::OsString;
use std::process::ExitCode;

use self::options::GvAsked;

/// The name under which this program acts as gvproxy.
pub const PROGRAM: &str = "gvproxy";
/// The release of gvproxy with which this program is compatible.
const RELEASE: &str = "v0.8.9";
/// The exit status for an invalid command line, as in Go's package flag.
const BAD_LINE: u8 = 2;

/// The reason why a network cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GvFailure(pub String);

impl GvFailure {
    /// Returns a function that turns an error into a failure of the step `what`.
    fn step<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> GvFailure {
        move |why| GvFailure(format!("{what}: {why}"))
    }
}

impl From<crate::CliError> for GvFailure {
    fn from(why: crate::CliError) -> GvFailure {
        GvFailure(format!("{why}; {}", why.next()))
    }
}

/// Runs the program with the arguments `words`, which exclude the program's name.
#[must_use]
pub fn main(words: &[OsString]) -> ExitCode {
    if let Some(code) = ssh::as_proxy_command() {
        return code;
    }
    match options::read(words) {
        Ok(GvAsked::Help) => {
            netvale_control::note!("{}", options::usage().trim_end());
            ExitCode::SUCCESS
        }
        Ok(GvAsked::Version) => {
            // If standard output is closed, the error could not be reported anywhere useful.
            let _ = crate::out::line(version());
            ExitCode::SUCCESS
        }
        Ok(GvAsked::Run(options)) => started(&options),
        Err(why) => {
            netvale_control::note!("{why}\n{}", options::usage().trim_end());
            ExitCode::from(BAD_LINE)
        }
    }
}

/// Starts a thread of the network.
fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), GvFailure> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(GvFailure::step("cannot start a thread"))
}

fn started(options: &options::GvOptions) -> ExitCode {
    let settings = match settings::settle(options) {
        Ok(settings) => settings,
        Err(why) => {
            log::fatal(&why);
            return ExitCode::FAILURE;
        }
    };
    log::info(version());
    if let Err(why) = serve::run(&settings) {
        log::error(format_args!("gvproxy exiting: {why}"));
    }
    // gvproxy's exit status is 0 even after an error.
    ExitCode::SUCCESS
}

fn version() -> String {
    format!("gvproxy version {RELEASE} (netvale {}, called gvproxy)", env!("CARGO_PKG_VERSION"))
}
