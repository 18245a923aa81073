//! `netvale dump`: writes ports' frames to capture files.

use std::path::{Path, PathBuf};

use crate::capture::files::OutputFiles;
use crate::capture::filter::CaptureFilter;
use crate::capture::limits::{CaptureCondition, CaptureLimits};
use crate::capture::lines;
use crate::capture::recorder::{self, CapturePlan, CaptureTotals};
use crate::capture::source::CapturePorts;
use crate::{CliContext, CliError, out};

/// Print ports' frames, or write them to a capture file.
///
/// The port's name decides what is captured: vale0:a/t, /r and /rt copy what a port in use sends, receives, or both;
/// vale0:a opens the port itself and captures what it receives. If another program has vale0:a open, or if no program
/// can open it, such as a TAP, vale0:a means vale0:a/rt. Ctrl-C ends the capture; when the command has ended, the file
/// is complete. A capture that is too slow loses its own copies, never the port's frames; the statistics at the end of
/// a pcapng file count them. -w, -f, -s, -c, -a and -b are dumpcap's.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DumpArgs {
    /// The ports. Several ports need pcapng, in which each is an interface with its name.
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<String>,

    /// The file; - is standard output. Without a file, each frame is printed as a line.
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The file's format. By default, the file's name decides: pcapng for *.pcapng, else pcap.
    #[arg(long, value_enum, value_name = "FORMAT", requires = "file")]
    pub format: Option<FileFormat>,

    /// Capture only frames that match an expression of pcap-filter(7), tcpdump's language, which libpcap compiles.
    #[arg(short = 'f', long, value_name = "EXPRESSION")]
    pub filter: Option<String>,

    /// Stop after this many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Keep this many bytes of each frame; 0: all.
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 0)]
    pub snaplen: u32,

    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// Stop after duration:SECONDS, filesize:KB in all, packets:N, or files:N; may be given several times.
    #[arg(short = 'a', long = "autostop", value_name = "CONDITION")]
    pub autostop: Vec<CaptureCondition>,

    /// Continue in another file after duration:SECONDS, filesize:KB or packets:N; files:N keeps the newest N. File
    /// names have a number and the time in UTC: FILE_00001_20260101120000.pcapng.
    #[arg(short = 'b', long = "ring-buffer", value_name = "CONDITION", requires = "file")]
    pub ring: Vec<CaptureCondition>,

    /// Print the totals as one JSON object, on standard error if the file is standard output.
    #[arg(long)]
    pub json: bool,
}

/// Capture file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileFormat {
    /// The classic format, with time stamps in nanoseconds.
    Pcap,
    /// pcapng, the successor of the classic format.
    Pcapng,
}

const EXAMPLES: &str = "\
Examples:
  netvale dump vale0:a
  netvale dump vale0:a/rt -w a.pcapng
  netvale dump vale0:a/rt vale0:b/rt -w both.pcapng -f 'udp port 53' -a duration:60
  netvale dump vale0:a/rt -w ring.pcapng -b filesize:100000 -b files:10
  netvale dump vale0:a/r -w - | tcpdump -n -r -
";

/// Runs the subcommand.
///
/// # Errors
/// A port cannot be opened, the filter cannot be compiled, the file cannot be written.
pub fn run(args: &DumpArgs, ctx: &CliContext) -> Result<(), CliError> {
    let plan = plan(args)?;
    let files = args.file.as_deref().map(|file| files(args, file)).transpose()?;
    let mut sources = CapturePorts::open(&args.ports, ctx)?;
    let stop = crate::signals::stop_pipe()?;
    let (totals, ended) = match files {
        Some(mut files) => recorder::record(&mut sources, &mut files, &plan, &stop)?,
        None => {
            netvale_control::note!("capturing from now on");
            lines::print(&mut sources, &plan, &stop)
        }
    };
    report(args, &totals)?;
    ended
}

fn plan(args: &DumpArgs) -> Result<CapturePlan, CliError> {
    let seconds = args.seconds.map(CaptureCondition::Duration);
    let end: Vec<_> =
        args.autostop.iter().copied().chain(seconds).chain(args.count.map(CaptureCondition::Packets)).collect();
    let format = format(args);
    if args.file.is_some() && args.ports.len() > 1 && format == netvale_pcapport::PcapFormat::Pcap {
        return Err(CliError::usage("a pcap file takes only one port", "add --format pcapng, or name a file *.pcapng"));
    }
    Ok(CapturePlan {
        format,
        filter: CaptureFilter::new(args.filter.as_deref(), args.snaplen)?,
        expression: args.filter.clone(),
        snaplen: args.snaplen,
        end: CaptureLimits::of(&end),
        next: CaptureLimits::of(&args.ring),
    })
}

/// Returns the output files. As in dumpcap, if only a number of files is given, no file has a limit.
fn files(args: &DumpArgs, file: &Path) -> Result<OutputFiles, CliError> {
    let next = CaptureLimits::of(&args.ring);
    if args.ring.is_empty() {
        return Ok(OutputFiles::one(file));
    }
    let wrong = |what: &str, next: &str| Err(CliError::usage(what.to_owned(), next.to_owned()));
    if (next.duration, next.bytes, next.packets) == (None, None, None) {
        return wrong("-b files: alone sets no limit for a file", "add -b filesize:1000, duration:60 or packets:1000");
    }
    let files = OutputFiles::ring(file, next.files);
    if files.is_stdout() || file.file_name().is_none() {
        return wrong("-b writes several files", "add -w FILE, from which their names are made");
    }
    Ok(files)
}

fn format(args: &DumpArgs) -> netvale_pcapport::PcapFormat {
    match args.format {
        Some(FileFormat::Pcapng) => netvale_pcapport::PcapFormat::PcapNg,
        Some(FileFormat::Pcap) => netvale_pcapport::PcapFormat::Pcap,
        None => args.file.as_deref().map_or(netvale_pcapport::PcapFormat::Pcap, netvale_pcapport::PcapFormat::of),
    }
}

fn report(args: &DumpArgs, totals: &CaptureTotals) -> Result<(), CliError> {
    let seconds = totals.time.as_secs_f64();
    let text = if args.json {
        serde_json::json!({
            "frames": totals.frames,
            "bytes": totals.bytes,
            "seconds": seconds,
            "received": totals.received,
            "dropped": totals.dropped,
            "files": totals.files,
        })
        .to_string()
    } else {
        let lost = totals.dropped.filter(|lost| *lost > 0);
        let lost = lost.map(|lost| format!("; {lost} more were lost: the capture was too slow")).unwrap_or_default();
        format!("{} frames, {} bytes captured in {seconds:.2} seconds{lost}", totals.frames, totals.bytes)
    };
    if args.file.as_ref().is_none_or(|file| file.as_os_str() == "-") {
        netvale_control::note!("{text}");
        return Ok(());
    }
    out::line(text)
}
