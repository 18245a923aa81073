//! The generator of the guest's own kernel, pktgen, on its interface.

use netvale_control::types::Mac;

use super::*;

/// The kernel's module, and the folder of its files.
const MODULE: &str = "/lib/pktgen.ko";
const FOLDER: &str = "/proc/net/pktgen";
/// The files of all of it, of the first processor's thread, and of the interface.
const ALL: &str = "pgctrl";
const THREAD: &str = "kpktgend_0";
const DEVICE: &str = "eth0";
/// The interface's result while frames are sent.
const SENDING: &str = "Result: Starting";
/// The number of bursts that the same packet is sent in: making it is none of the driver's work.
const SAME: u32 = 100_000;
/// The longest that the thread may take to begin.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Sends frames to the sink, in bursts of a given number that the driver learns of together; the kernel counts and
/// times them.
pub fn send(bytes: usize, burst: &str, window: Duration) -> Result<Done> {
    prepare(bytes, burst)?;
    // The call returns when all has been stopped.
    let call = std::thread::spawn(|| tell(ALL, "start"));
    let has_begun = || Ok((call.is_finished() || state()?.contains(SENDING)).then_some(()));
    // Told to stop before, it would begin afterwards and never end.
    let begun = interrupt::poll_until(START_LIMIT, has_begun)?;
    begun.ok_or_else(|| BenchError::Usage("pktgen did not begin".into()))?;
    std::thread::sleep(window);
    tell(ALL, "stop")?;
    call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let text = state()?;
    result(&text).ok_or_else(|| BenchError::unreadable("pktgen", "the result", &text))
}

/// Says what is to be sent.
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
    written.map_err(BenchError::io(format!("telling pktgen {what}")))
}

/// What the kernel says of the interface.
fn state() -> Result<String> {
    std::fs::read_to_string(format!("{FOLDER}/{DEVICE}")).map_err(BenchError::io("reading pktgen's state"))
}

/// The result in it, once all has been stopped.
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

    /// Objective: the kernel's count and time are read; what it says of a setting, or while it sends, is no result.
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
