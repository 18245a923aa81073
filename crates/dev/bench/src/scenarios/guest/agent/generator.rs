//! pktgen, the generator of the guest's own kernel, on the guest's interface.

use netvale_control::types::Mac;

use super::*;

/// Path of the kernel module in the guest.
const MODULE: &str = "/lib/pktgen.ko";
/// Folder of pktgen's control files.
const FOLDER: &str = "/proc/net/pktgen";
/// Control file of pktgen as a whole.
const ALL: &str = "pgctrl";
/// Control file of the first CPU's kernel thread.
const THREAD: &str = "kpktgend_0";
/// The interface on which pktgen sends, and its control file.
const DEVICE: &str = "eth0";
/// Text in the interface's control file while frames are sent.
const SENDING: &str = "Result: Starting";
/// Number of times that pktgen sends a packet before it builds a new one: high, because building packets is not part of
/// the driver's work, which is measured.
const SAME: u32 = 100_000;
/// Time limit for pktgen's thread to start sending.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Sends frames to the sink with pktgen, which counts and times them. The driver notifies the device once per burst.
pub fn send(bytes: usize, burst: &str, window: Duration) -> Result<Done> {
    prepare(bytes, burst)?;
    // The write of "start" returns only once pktgen has stopped sending.
    let call = std::thread::spawn(|| tell(ALL, "start"));
    let has_begun = || Ok((call.is_finished() || state()?.contains(SENDING)).then_some(()));
    // A stop request that arrived earlier would have no effect, and sending would never end.
    let begun = interrupt::poll_until(START_LIMIT, has_begun)?;
    begun.ok_or_else(|| BenchError::Usage("pktgen did not start within 10 s".into()))?;
    std::thread::sleep(window);
    tell(ALL, "stop")?;
    call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let text = state()?;
    result(&text).ok_or_else(|| BenchError::unreadable("pktgen", "the result", &text))
}

/// Loads pktgen if necessary, and sets the frames' length, burst and destination.
fn prepare(bytes: usize, burst: &str) -> Result<()> {
    if !Path::new(FOLDER).exists() {
        child::run(Command::new("/bin/insmod").arg(MODULE))?;
    }
    if !Path::new(FOLDER).join(DEVICE).exists() {
        tell(THREAD, &format!("add_device {DEVICE}"))?;
    }
    let settings = [
        "count 0".to_owned(),
        "delay 0".to_owned(),
        format!("clone_skb {SAME}"),
        format!("pkt_size {bytes}"),
        format!("burst {burst}"),
        format!("dst_mac {}", Mac(SINK_MAC)),
    ];
    settings.iter().try_for_each(|setting| tell(DEVICE, setting))
}

fn tell(file: &str, what: &str) -> Result<()> {
    let written = std::fs::write(format!("{FOLDER}/{file}"), format!("{what}\n"));
    written.map_err(BenchError::io(format!("writing {what:?} to pktgen")))
}

/// Reads the interface's control file.
fn state() -> Result<String> {
    std::fs::read_to_string(format!("{FOLDER}/{DEVICE}")).map_err(BenchError::io("reading pktgen's state"))
}

/// Parses the result from the text of the interface's control file; `None` until sending has stopped.
fn result(text: &str) -> Option<Done> {
    let (_, result) = text.split_once("Result: OK: ")?;
    let (micros, rest) = result.split_once('(')?;
    let (_, frames) = rest.split_once(" usec, ")?;
    let count = frames.split_whitespace().next()?.parse().ok()?;
    Some(Done { count, time: Duration::from_micros(micros.parse().ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the kernel's count and time are parsed; the control file has no result before and while frames are
    /// sent, or after a parameter was set.
    #[test]
    fn results() {
        let text = "Current:\n     pkts-sofar: 130240  errors: 0\n\
            Result: OK: 1000040(c998901+d1139) usec, 130240 (60byte,0frags)\n  130234pps 62Mb/sec (62512320bps)\n";
        let done = result(text).expect("a result");
        assert_eq!(done.count, 130_240);
        assert_eq!(done.time, Duration::from_micros(1_000_040));
        for other in ["Result: OK: burst=50\n", "Result: Starting\n", "Result: Idle\n", ""] {
            assert!(result(other).is_none(), "{other}");
        }
    }
}
