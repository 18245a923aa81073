//! `netvale dump`: writes a port's frames to a capture file.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use netvale::{Interest, Options, Port};
use netvale_pcapport::{WriteError, Writer};

use crate::{CliError, Ctx, out};

/// Write a port's frames to a capture file.
///
/// What is captured depends on the port's name: vale0:a receives, vale0:a/t, /r and /rt copy what a port in use sends, receives, or both.
/// Ctrl-C ends it. The file is complete when the command ends.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The port.
    pub port: String,

    /// The file; - is standard output.
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub file: PathBuf,

    /// The file's format. Without it, from the file's name: pcapng for *.pcapng, else pcap.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Stop after this many frames.
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Keep this many bytes of each frame; 0: all.
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 0)]
    pub snaplen: u32,

    /// Stop after this many seconds.
    #[arg(long, value_name = "S", value_parser = crate::values::seconds)]
    pub seconds: Option<f64>,

    /// Print the totals as one JSON object, on standard error if the file is standard output.
    #[arg(long)]
    pub json: bool,
}

/// Capture file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The classic format, with nanoseconds.
    Pcap,
    /// The successor of the classic format.
    Pcapng,
}

const EXAMPLES: &str = "\
Examples:
  netvale dump vale0:a/rt -w a.pcapng
  netvale dump vale0:a/r -w - | tcpdump -n -r -
";

/// Runs the subcommand.
///
/// # Errors
/// The port cannot be opened, the file cannot be written.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let options = Options { run_dir: ctx.run_dir.clone(), ..Options::default() };
    let mut port = Port::open_with(&args.port, &options).map_err(|e| crate::ctx::port_error(&args.port, &e))?;
    let stop = crate::signals::stop_flag()?;
    let to_stdout = args.file.as_os_str() == "-";
    let to: Box<dyn Write> = if to_stdout { Box::new(std::io::stdout()) } else { Box::new(create(args)?) };
    let mut writer = Writer::new(to, format(args)).map_err(|e| unwritable(args, &e))?;
    let limit = args.seconds.map(Duration::from_secs_f64);
    let start = Instant::now();
    let (mut frames, mut bytes) = (0u64, 0u64);
    let mut frame = vec![0u8; 65_550];
    let ended = loop {
        let over = args.count.is_some_and(|c| frames >= c) || limit.is_some_and(|l| start.elapsed() >= l);
        if over || stop.load(Ordering::Relaxed) {
            break Ok(());
        }
        match port.wait(Interest::Rx, Some(Duration::from_millis(100))) {
            Ok(_) => {}
            Err(e) => break Err(crate::ctx::port_error(&args.port, &e)),
        }
        let left = args.count.map_or(u64::MAX, |c| c - frames);
        let (n, b) = drain(&mut port, &mut frame, left, args.snaplen, &mut writer).map_err(|e| unwritable(args, &e))?;
        (frames, bytes) = (frames + n, bytes + b);
    };
    writer.finish().map_err(|e| unwritable(args, &e))?;
    let text = if args.json {
        serde_json::json!({"frames": frames, "bytes": bytes, "seconds": start.elapsed().as_secs_f64()}).to_string()
    } else {
        format!("{frames} frames, {bytes} bytes captured in {:.2} seconds", start.elapsed().as_secs_f64())
    };
    if to_stdout {
        eprintln!("{text}")
    } else {
        out::line(text)?
    }
    ended.map(|()| ExitCode::SUCCESS)
}

fn create(args: &Args) -> Result<File, CliError> {
    let failed =
        |e| CliError::failed(format!("cannot write {}: {e}", args.file.display()), "name another file with -w");
    File::create(&args.file).map_err(failed)
}

fn format(args: &Args) -> netvale_pcapport::Format {
    match args.format {
        Some(Format::Pcapng) => netvale_pcapport::Format::PcapNg,
        Some(Format::Pcap) => netvale_pcapport::Format::Pcap,
        None => netvale_pcapport::Format::of(&args.file),
    }
}

/// A reader of standard output that went away is no failure.
fn unwritable(args: &Args, error: &WriteError) -> CliError {
    match error.io() {
        Some(io) if io.kind() == std::io::ErrorKind::BrokenPipe => CliError::output(io),
        _ => CliError::failed(format!("{}: {error}", args.file.display()), "make room, or write elsewhere with -w"),
    }
}

/// Writes what has come, at most `most` frames of `snaplen` bytes (0: all). Returns frames and bytes.
fn drain(
    port: &mut Port,
    frame: &mut [u8],
    most: u64,
    snaplen: u32,
    writer: &mut Writer<Box<dyn Write>>,
) -> Result<(u64, u64), WriteError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut frames, mut bytes) = (0, 0);
    for ring in port.rx() {
        while frames < most
            && let Some(len) = ring.recv(frame)
        {
            let keep = if snaplen == 0 { len } else { len.min(snaplen as usize) };
            writer.write_cut(now, &frame[..keep], len as u32)?;
            (frames, bytes) = (frames + 1, bytes + len as u64);
        }
        let _ = ring.sync();
    }
    Ok((frames, bytes))
}
