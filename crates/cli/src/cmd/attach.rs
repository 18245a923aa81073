//! `netvale attach`: a port more on a switch.

use std::path::Path;
use std::process::ExitCode;

use netvale_control::types::{AttachParams, Mac, PortOptions};
use netvale_portspec::{AttachSpec, FilePath, Ident, ParseError, PcapFiles, SwitchName};

use crate::{CliError, Ctx, out, values};

/// Attach a port to a switch.
///
/// The switch is made where there is none. The port stays until `netvale detach` or the end of the daemon. Numbers omitted, or
/// 0, mean the daemon's defaults.
#[derive(Debug, clap::Args)]
#[command(after_long_help = PORTS, override_usage = USAGE)]
pub struct Args {
    /// The switch, e.g. vale0; omitted with --backend.
    #[arg(value_name = "SWITCH")]
    first: String,

    /// What to attach: see below.
    #[arg(value_name = "PORT", required_unless_present = "backend")]
    second: Option<String>,

    /// The port's name on the switch. Without it, made from PORT.
    #[arg(long)]
    pub name: Option<String>,

    /// Hold senders back when this port is full, instead of dropping.
    #[arg(long)]
    pub lossless: bool,

    /// Rings in each direction (ptnet devices, too); queues of a TAP device; queue pairs of a vhost device or virtio driver.
    #[arg(long, value_name = "N", help_heading = "Rings (all but pcap ports)")]
    pub rings: Option<u32>,

    /// Slots of each ring; entries of a virtio driver's queues.
    #[arg(long, value_name = "N", help_heading = "Rings (all but pcap ports)")]
    pub slots: Option<u32>,

    /// Bytes of a buffer.
    #[arg(long, value_name = "BYTES", help_heading = LOCAL)]
    pub buf_size: Option<u32>,

    /// Buffers beyond those in the rings, for programs that keep frames.
    #[arg(long, value_name = "N", help_heading = LOCAL)]
    pub extra_bufs: Option<u32>,

    /// Prefer huge pages for the port's memory.
    #[arg(long, help_heading = LOCAL)]
    pub huge: bool,

    /// Bytes of virtio-net header before each frame; without a number, 12. A TAP port always has one. ptnet: offered to the driver.
    #[arg(long, value_name = "0|10|12", num_args = 0..=1, default_missing_value = "12", value_parser = values::vnet_hdr, help_heading = LOCAL)]
    pub vnet_hdr: Option<u32>,

    /// MTU of the device.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_535), help_heading = "Devices (TAP, vhost and ptnet ports)")]
    pub mtu: Option<u32>,

    /// pcap: begin again at the end of the file.
    #[arg(long = "loop", help_heading = "Replay (pcap ports)")]
    pub repeat: bool,

    /// pcap: times the recorded speed; 0: as fast as the switch takes it [default: 1].
    #[arg(long, value_name = "FACTOR", value_parser = values::speed, help_heading = "Replay (pcap ports)")]
    pub speed: Option<f64>,

    /// virtio: the packed ring layout.
    #[arg(long, help_heading = "Back ends (virtio ports)")]
    pub packed: bool,

    /// virtio: a frame takes one buffer (non-mergeable).
    #[arg(long, help_heading = "Back ends (virtio ports)")]
    pub no_mergeable: bool,

    /// virtio: buffers may come back in any order, even if the back end offers to keep it.
    #[arg(long, conflicts_with = "vector", help_heading = "Back ends (virtio ports)")]
    pub no_in_order: bool,

    /// virtio: look at several ring entries at once (AVX-512, AVX2, NEON): fastest for short frames. Buffers come back in order, a frame
    /// takes one, checksums and segments are the switch's work.
    #[arg(long, help_heading = "Back ends (virtio ports)")]
    pub vector: bool,

    /// Merge TCP segments that follow one another into large ones, for a stack behind the port that gets them without segmentation offload
    /// at their source (GRO): from NICs, capture files, netmap programs.
    #[arg(long, help_heading = "Ports with a stack behind them (TAP, vhost, virtio, ptnet)")]
    pub gro: bool,

    /// netmap: attach the host's stack behind the interface too, as the port NAME^ ('vale-ctl -h').
    #[arg(long, help_heading = "Network interfaces (netmap ports)")]
    pub host: bool,

    /// ptnet: by vfio-user (QEMU from 10.1 on), as the PCI devices that netmap published, instead of ivshmem. The memory device listens beside
    /// the socket, at SOCKET.mem.
    #[arg(long, help_heading = "Virtual machines (vhost, ptnet and e1000 ports)")]
    pub vfio_user: bool,

    /// ptnet: the rings of a pipe or of a network interface are passed through, without a switch: netmap:p{1, netmap:eth0. The port has that
    /// name then.
    #[arg(long, value_name = "NETMAP PORT", conflicts_with_all = ["name", "lossless", "gro", "vnet_hdr"], help_heading = "Virtual machines (vhost, ptnet and e1000 ports)")]
    pub backend: Option<String>,

    /// e1000: the interrupt throttling register (256 ns a count; 0: none), whatever the driver writes.
    #[arg(long, value_name = "COUNTS", help_heading = "Virtual machines (vhost, ptnet and e1000 ports)")]
    pub itr: Option<u16>,

    /// vhost: connect to a front end that listens, instead of listening.
    #[arg(long, help_heading = "Virtual machines (vhost, ptnet and e1000 ports)")]
    pub client: bool,

    /// vhost, ptnet: Ethernet address offered to the driver [default: made from the port's name].
    #[arg(long, value_name = "MAC", help_heading = "Virtual machines (vhost, ptnet and e1000 ports)")]
    pub mac: Option<Mac>,

    /// Print the port as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const USAGE: &str =
    "netvale attach [OPTIONS] <SWITCH> <PORT>\n       netvale attach [OPTIONS] --backend <NETMAP PORT> <PORT>";

/// Options of ports with memory of their own.
const LOCAL: &str = "Memory (local and ptnet ports)";

const PORTS: &str = "\
Ports:
  NAME                   a port that local programs open as valeX:NAME
  tap:NAME               a TAP device: the host's network stack
  vhost:/PATH            a vhost-user device at this socket: a virtual machine's virtio-net
  ptnet:/PATH            a ptnet device at this socket: netmap rings that a virtual machine maps
  e1000:/PATH            an Intel 82540EM by vfio-user at this socket: any virtual machine's own driver
  virtio:/PATH           a virtio-net driver, for the vhost-user back end at this socket
  virtio-pci:ADDRESS     a virtio-net driver, for the device there on the bus, through vfio: in a virtual machine
  e1000-pci:ADDRESS      the same for an e1000
  pcap:FILE              frames of this capture file enter the switch
  pcap:in=FILE,out=FILE  replay one file, capture into another; either may be omitted

Examples:
  netvale attach vale0 tap:nv0
  netvale attach vale0 vhost:/run/netvale/vm1.sock --rings 2
  netvale attach vale0 pcap:trace.pcapng --loop --speed 2
  netvale attach --backend netmap:eth0 ptnet:/run/netvale/vm1.sock
  netvale attach vale0 web --rings 4 --slots 512 --lossless
";

/// Runs the subcommand.
///
/// # Errors
/// The port's text makes no sense, no daemon answers, or it refuses.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let params = params(args)?;
    let port = ctx.daemon()?.ask(|client| client.attach(params))?;
    if args.json {
        out::json(&port)?
    } else {
        out::line(format_args!("{} attached", port.name))?
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Switch and port; no switch with a backend.
    fn places(&self) -> Result<(&str, &str), CliError> {
        match (&self.second, &self.backend) {
            (Some(port), None) => Ok((&self.first, port)),
            (None, Some(_)) => Ok(("", &self.first)),
            _ => Err(CliError::usage(
                "a port is attached to a switch, or passed through by --backend".to_owned(),
                "leave the switch or --backend away",
            )),
        }
    }
}

fn params(args: &Args) -> Result<AttachParams, CliError> {
    let bad = |what: &str, error: ParseError| {
        CliError::usage(format!("bad {what}: {error:#}"), "'netvale attach --help' lists the kinds of ports")
    };
    let (switch, port) = args.places()?;
    if args.backend.is_none() {
        SwitchName::parse(switch).map_err(|error| bad("switch", error))?;
    }
    if let Some(name) = &args.name {
        Ident::parse(name).map_err(|error| bad("name", error))?;
    }
    let spec = AttachSpec::parse(port).map_err(|error| bad("port", error))?;
    if let Some((option, takers)) = unfit(args, &spec) {
        let what = format!("{option} is for {takers}, and {port} is none");
        return Err(CliError::usage(what, format!("leave {option} away; 'netvale attach --help' has examples")));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let options = PortOptions {
        name: args.name.clone(),
        rings: args.rings.unwrap_or(0),
        slots: args.slots.unwrap_or(0),
        buf_size: args.buf_size.unwrap_or(0),
        extra_bufs: args.extra_bufs.unwrap_or(0),
        lossless: args.lossless,
        huge: args.huge,
        vnet_hdr: args.vnet_hdr.unwrap_or(0),
        mtu: args.mtu,
        repeat: args.repeat,
        speed: args.speed,
        packed: args.packed,
        no_mergeable: args.no_mergeable,
        no_in_order: args.no_in_order,
        vector: args.vector,
        gro: args.gro,
        host: args.host,
        vfio_user: args.vfio_user,
        backend: args.backend.clone(),
        itr: args.itr,
        client: args.client,
        mac: args.mac,
    };
    Ok(AttachParams { switch: switch.to_owned(), port: absolute(&spec, &here), options })
}

/// An option that ports of this kind do not take, and the ports that do: silently ignored, it would do harm later.
fn unfit(args: &Args, spec: &AttachSpec) -> Option<(&'static str, &'static str)> {
    let local = matches!(spec, AttachSpec::Local(_));
    let tap = matches!(spec, AttachSpec::Tap(_));
    let vhost = matches!(spec, AttachSpec::Vhost(_));
    let ptnet = matches!(spec, AttachSpec::Ptnet(_));
    let e1000 = matches!(spec, AttachSpec::E1000(_));
    let e1000_pci = matches!(spec, AttachSpec::E1000Pci(_));
    let virtio = matches!(spec, AttachSpec::Virtio(_) | AttachSpec::VirtioPci(_));
    let replay = matches!(spec, AttachSpec::Pcap(PcapFiles::Replay(_) | PcapFiles::Both { .. }));
    // Ports of the other kinds are the daemon's to judge.
    let nic = matches!(spec, AttachSpec::Netmap(_));
    if !(local || tap || vhost || ptnet || e1000 || e1000_pci || virtio || nic || matches!(spec, AttachSpec::Pcap(_))) {
        return None;
    }
    [
        (
            args.rings.is_some() && (nic || e1000 || e1000_pci || matches!(spec, AttachSpec::Pcap(_))),
            "--rings",
            "ports other than capture files and interfaces",
        ),
        (
            args.slots.is_some() && !(local || virtio || nic || ptnet || e1000_pci),
            "--slots",
            "local, virtio, e1000-pci, ptnet and netmap ports",
        ),
        (args.host && !nic, "--host", "network interfaces (netmap ports)"),
        (args.buf_size.is_some() && !(local || ptnet), "--buf-size", "local and ptnet ports"),
        (args.extra_bufs.is_some() && !local, "--extra-bufs", "local ports"),
        (args.huge && !local, "--huge", "local ports"),
        (
            args.vnet_hdr.is_some() && (tap || vhost || virtio || nic || e1000 || e1000_pci),
            "--vnet-hdr",
            "local, ptnet and pcap ports",
        ),
        (args.mtu.is_some() && !(tap || vhost || ptnet), "--mtu", "TAP, vhost and ptnet ports"),
        (args.packed && !virtio, "--packed", "virtio ports"),
        (args.no_mergeable && !virtio, "--no-mergeable", "virtio ports"),
        (args.no_in_order && !virtio, "--no-in-order", "virtio ports"),
        (args.vector && !virtio, "--vector", "virtio ports"),
        (args.gro && !(tap || vhost || virtio || ptnet || e1000), "--gro", "TAP, vhost, ptnet, e1000 and virtio ports"),
        (args.vfio_user && !ptnet, "--vfio-user", "ptnet ports"),
        (args.backend.is_some() && !ptnet, "--backend", "ptnet ports"),
        (args.itr.is_some() && !e1000, "--itr", "e1000 ports"),
        (args.client && !vhost, "--client", "vhost ports"),
        (args.mac.is_some() && !(vhost || ptnet || e1000), "--mac", "vhost, ptnet and e1000 ports"),
        (args.repeat && !replay, "--loop", "pcap ports that replay a file"),
        (args.speed.is_some() && !replay, "--speed", "pcap ports that replay a file"),
    ]
    .into_iter()
    .find_map(|(wrong, option, takers)| wrong.then_some((option, takers)))
}

/// The port's text with absolute paths: the daemon works in another folder than the user.
fn absolute(spec: &AttachSpec, here: &Path) -> String {
    let path = |file: &FilePath| here.join(file.as_str()).display().to_string();
    match spec {
        AttachSpec::Pcap(PcapFiles::Replay(file)) => format!("pcap:in={}", path(file)),
        AttachSpec::Pcap(PcapFiles::Capture(file)) => format!("pcap:out={}", path(file)),
        AttachSpec::Pcap(PcapFiles::Both { replay, capture }) => {
            format!("pcap:in={},out={}", path(replay), path(capture))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: relative paths are those of the user's folder, absolute ones stay, and nothing else changes.
    #[test]
    fn paths() {
        let text = |port: &str| AttachSpec::parse(port).map(|spec| absolute(&spec, Path::new("/home/u")));
        assert_eq!(text("pcap:a.pcap").as_deref(), Ok("pcap:in=/home/u/a.pcap"));
        assert_eq!(text("pcap:in=a,out=/b").as_deref(), Ok("pcap:in=/home/u/a,out=/b"));
        assert_eq!(text("tap:nv0").as_deref(), Ok("tap:nv0"));
        assert_eq!(text("vale0:a").as_deref(), Ok("vale0:a"));
    }
}
