//! Finds out where a process spends its time. `perf` samples the addresses of the instructions that the process
//! executes, in the kernel too, by a timer, which needs no hardware counters. `addr2line` returns the source files of
//! addresses in netvale's programs, through all inlined functions.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::{BenchError, Result, Skip};
use crate::sys::Need;
use crate::sys::child::run;

/// What profiling needs.
pub const NEEDS: &[Need] = &[
    Need::Root("sampling the kernel"),
    Need::Program("perf", "linux-perf"),
    Need::Program("addr2line", "binutils"),
    Need::Found(has_events),
];
/// Samples per second; odd, so that sampling is not in step with the kernel's own timers.
const RATE: &str = "4999";

fn has_events() -> std::result::Result<(), Skip> {
    let there = Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
    there.then_some(()).ok_or(Skip::NotBuilt("the kernel has no performance events (CONFIG_PERF_EVENTS)"))
}

/// The place in the code at which a sample was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The function, as named by `perf`.
    pub function: String,
    /// The source files of netvale's programs, from the innermost inlined function outwards; empty for the kernel and
    /// libraries.
    pub files: Vec<String>,
}

/// Samples a process for the given time.
pub fn sample(pid: u32, window: Duration) -> Result<Vec<CodePlace>> {
    let folder = super::scratch("profile")?;
    let data = folder.path().join("data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-N", "-B", "-e", "cpu-clock", "-F", RATE, "-p", &pid.to_string(), "-o"]).arg(&data);
    run(record.args(["--", "sleep", &window.as_secs_f64().to_string()]))?;
    let text = run(Command::new("perf").args(["script", "-F", "ip,sym", "-i"]).arg(&data))?;
    let samples: Vec<Sampled> = text.lines().filter_map(Sampled::parse).collect();
    if samples.is_empty() {
        return Err(BenchError::unreadable("perf script", "samples", &text));
    }
    let failed = || BenchError::io(format!("reading /proc/{pid}"));
    let program = fs::read_link(format!("/proc/{pid}/exe")).map_err(failed())?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(failed())?;
    let image = image(&maps, &program.to_string_lossy()).unwrap_or_default();
    let inside = samples.iter().filter(|sample| image.contains(&sample.address));
    let addresses = inside.map(|sample| sample.address - image.start).collect();
    let known = files(&program, &addresses)?;
    let place = |sample: Sampled| {
        let files = sample.address.checked_sub(image.start).and_then(|address| known.get(&address));
        CodePlace { function: sample.function, files: files.cloned().unwrap_or_default() }
    };
    Ok(samples.into_iter().map(place).collect())
}

/// A line of `perf script`.
struct Sampled {
    address: u64,
    function: String,
}

impl Sampled {
    fn parse(line: &str) -> Option<Sampled> {
        let (address, function) = line.trim().split_once(' ')?;
        Some(Sampled { address: u64::from_str_radix(address, 16).ok()?, function: function.trim().to_owned() })
    }
}

/// Returns the addresses at which a process has mapped its program; `None` if `maps` does not contain the program.
fn image(maps: &str, program: &str) -> Option<Range<u64>> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (begin, rest) = line.split_once('-')?;
        Some(number(begin)?..number(rest.split(' ').next()?)?)
    };
    let all: Vec<Range<u64>> = maps.lines().filter(|line| line.ends_with(program)).filter_map(range).collect();
    Some(all.first()?.start..all.last()?.end)
}

/// Returns the source files of addresses within a program.
fn files(program: &Path, addresses: &BTreeSet<u64>) -> Result<HashMap<u64, Vec<String>>> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-i", "-e"]).arg(program).args(addresses.iter().map(|address| format!("{address:x}")));
    run(&mut command).map(|text| chains(&text))
}

/// Parses addr2line's output: after each address, a line for each function, the innermost first.
fn chains(text: &str) -> HashMap<u64, Vec<String>> {
    let mut all: HashMap<u64, Vec<String>> = HashMap::new();
    let mut at = 0;
    for line in text.lines() {
        if let Some(address) = line.strip_prefix("0x") {
            at = u64::from_str_radix(address, 16).unwrap_or(0);
        } else {
            let file = line.rsplit_once(':').map_or(line, |parts| parts.0);
            all.entry(at).or_default().push(file.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: lines about programs and the kernel are parsed; other lines are skipped.
    #[test]
    fn texts() {
        let sampled = Sampled::parse("   ffffffff81a3c3b0 udp_sendmsg").expect("a sample");
        assert_eq!((sampled.address, sampled.function.as_str()), (0xffff_ffff_81a3_c3b0, "udp_sendmsg"));
        let of_ours = Sampled::parse("    55d0 <a::B as c::D>::send").expect("a sample");
        assert_eq!(of_ours.function, "<a::B as c::D>::send");
        assert!(Sampled::parse("").is_none() && Sampled::parse("Warning: lost samples").is_none());
        let maps = "1000-2000 r--p 00000000 fe:00 9 /bin/x\n2000-4000 r-xp 00001000 fe:00 9 /bin/x\n\
            7000-9000 r-xp 00000000 fe:00 8 /lib/libc.so.6\n";
        assert_eq!(image(maps, "/bin/x"), Some(0x1000..0x4000));
        assert_eq!(image(maps, "/bin/y"), None);
        let found = chains("0x0000000000001234\n/a/copy.rs:7 (discriminator 2)\n/a/ring.rs:9\n0x2\n??:0\n");
        assert_eq!(found[&0x1234], ["/a/copy.rs", "/a/ring.rs"]);
        assert_eq!(found[&2], ["??"]);
    }
}
