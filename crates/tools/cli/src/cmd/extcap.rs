//! `netvale extcap`: ports as interfaces of Wireshark.
//!
//! Wireshark, tshark and related programs start each program of their extcap folder with a few common options: to list
//! interfaces, to describe their options, to capture into a FIFO. The program `netvale-extcap` in that folder is a link
//! to the program netvale.
//!
//! | module | what it is |
//! |---|---|
//! | `names` | ports' names in Wireshark's form |
//! | `sentences` | the output for Wireshark |
//! | `local` | ports of this host's daemons |
//! | `remote` | a port of another host, through ssh |
//! | `install` | the link in Wireshark's folder |

use std::path::PathBuf;

use netvale_pcapport::PcapFormat;

use crate::capture::files::OutputFiles;
use crate::capture::filter::CaptureFilter;
use crate::capture::limits::CaptureLimits;
use crate::capture::recorder::{self, CapturePlan};
use crate::capture::source::CapturePorts;
use crate::{CliContext, CliError, libpcap, out};

mod install;
mod local;
mod names;
mod remote;
mod sentences;

use names::InterfaceName;

/// Name of this program in Wireshark's folder.
pub const PROGRAM: &str = "netvale-extcap";

/// Let Wireshark capture on ports: `netvale extcap --install` adds them to its interfaces.
///
/// Wireshark starts this command as its own user. Each user sees their own ports, of the daemon that `netvale list`
/// uses and of the system's daemon. One more interface captures on a port of another host, through ssh.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct ExtcapArgs {
    /// Put a link to this program into the given folder. Default: Wireshark's extcap folder; for root, that of all
    /// users.
    #[arg(long, value_name = "DIR")]
    install: Option<Option<PathBuf>>,

    /// List the interfaces.
    #[arg(long, help_heading = WIRESHARK)]
    extcap_interfaces: bool,

    /// List the link types of an interface.
    #[arg(long, help_heading = WIRESHARK, requires = "extcap_interface")]
    extcap_dlts: bool,

    /// List the options of an interface.
    #[arg(long, help_heading = WIRESHARK, requires = "extcap_interface")]
    extcap_config: bool,

    /// Capture from an interface into a FIFO.
    #[arg(long, help_heading = WIRESHARK, requires_all = ["extcap_interface", "fifo"])]
    capture: bool,

    /// The version of Wireshark.
    #[arg(long, help_heading = WIRESHARK, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<String>,

    /// The interface: one of those listed, or ssh://[USER@]HOST[:PORT]/PORT.
    #[arg(long, help_heading = WIRESHARK, value_name = "NAME")]
    extcap_interface: Option<String>,

    /// An expression of pcap-filter(7). Without --capture, it is only checked.
    #[arg(long, help_heading = WIRESHARK, value_name = "EXPRESSION")]
    extcap_capture_filter: Option<String>,

    /// The FIFO, or a file.
    #[arg(long, help_heading = WIRESHARK, value_name = "FILE")]
    fifo: Option<PathBuf>,

    /// Frames that the port receives (r), sends (t), or both (rt).
    #[arg(long, help_heading = INTERFACE, value_name = "r|t|rt", default_value = "rt", value_parser = ["r", "t", "rt"])]
    direction: String,

    /// Keep this many bytes of each frame; 0: all.
    #[arg(long, help_heading = INTERFACE, value_name = "BYTES", default_value_t = 0)]
    snaplen: u32,

    #[command(flatten)]
    remote: remote::SshOptions,
}

const WIRESHARK: &str = "Options used by Wireshark";
const INTERFACE: &str = "Options of interfaces";

/// Runs the subcommand.
///
/// # Errors
/// The interface does not exist, the filter cannot be compiled, the port or the FIFO cannot be opened, ssh fails.
pub fn run(args: &ExtcapArgs, ctx: &CliContext) -> Result<(), CliError> {
    if let Some(folder) = &args.install {
        return install::install(folder.as_deref());
    }
    if args.extcap_interfaces {
        return out::text(sentences::interfaces(&local::ports(ctx)));
    }
    let name = args.extcap_interface.as_deref().map(InterfaceName::read).transpose()?;
    match (name, &args.fifo, &args.extcap_capture_filter) {
        (Some(_), ..) if args.extcap_dlts => out::text(sentences::DLTS),
        (Some(name), ..) if args.extcap_config => out::text(sentences::config(&name)),
        (Some(name), Some(fifo), _) if args.capture => capture(args, &name, fifo, ctx),
        // Wireshark shows any output as the reason why the filter is invalid.
        (Some(_), _, Some(expression)) => libpcap::compile(expression).map(drop).or_else(out::line),
        _ => Err(CliError::usage(
            "no action given for the interface",
            "use --install: Wireshark then starts this command itself",
        )),
    }
}

fn capture(args: &ExtcapArgs, name: &InterfaceName, fifo: &std::path::Path, ctx: &CliContext) -> Result<(), CliError> {
    let expression = args.extcap_capture_filter.clone().filter(|text| !text.trim().is_empty());
    let watch =
        remote::CaptureParams { direction: &args.direction, snaplen: args.snaplen, filter: expression.as_deref() };
    let port = match name {
        InterfaceName::Port(port) => port,
        InterfaceName::Remote(place) => return remote::capture(&args.remote.with(place)?, &watch, fifo),
    };
    let plan = CapturePlan {
        format: PcapFormat::PcapNg,
        filter: CaptureFilter::new(expression.as_deref(), args.snaplen)?,
        expression,
        snaplen: args.snaplen,
        end: CaptureLimits::default(),
        next: CaptureLimits::default(),
    };
    let mut sources = CapturePorts::open(&[format!("{port}/{}", args.direction)], &local::daemon_of(port, ctx))?;
    let mut files = OutputFiles::one(fifo);
    let stop = crate::signals::stop_pipe()?;
    let (_, ended) = recorder::record(&mut sources, &mut files, &plan, &stop)?;
    ended
}
