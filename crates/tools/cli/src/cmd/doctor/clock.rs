//! Check: the clock source, and the cost of reading the time.

use std::hint::black_box;
use std::time::Instant;

use super::files;
use super::row::{CheckRow, rounded};

const CHECK: &str = "clock";

/// Measures the cost of reading the time, and reads the name of the clock source.
pub fn look() -> CheckRow {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    judge(files::read(file).as_deref(), cost_ns())
}

/// Returns how many nanoseconds a reading of the time takes. The time of the fastest of a few batches counts, because
/// other load on the CPU can only add time.
fn cost_ns() -> f64 {
    const READS: u32 = 20_000;
    let batch = |_| {
        let start = Instant::now();
        for _ in 0..READS {
            black_box(Instant::now());
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(READS)
    };
    (0..5).map(batch).fold(f64::INFINITY, f64::min)
}

fn judge(source: Option<&str>, cost_ns: f64) -> CheckRow {
    /// A cost above this means that each reading of the time takes a system call or an access to a device.
    const HIGH_NS: f64 = 100.0;
    let found = format!("{}: reading the time takes {cost_ns:.0} ns", source.unwrap_or("clock source unknown"));
    let row = CheckRow::ok(CHECK, found).figure("source", source).figure("read_ns", rounded(cost_ns));
    row.advise_if(
        cost_ns > HIGH_NS,
        "Polling workers and programs read the time continually. Without a clock that is read in user space, \
         each reading is a system call or accesses a device.",
        "`tsc` on hardware, `kvm-clock` or `hyperv_clocksource_tsc_page` in a virtual machine: write it to \
         /sys/devices/system/clocksource/clocksource0/current_clocksource if available_clocksource has it; dmesg shows \
         why the kernel dropped it",
    )
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    /// Objective: a slow clock source yields advice that names the clock source; a fast clock source yields no advice,
    /// even if its name is unknown.
    #[test]
    fn a_slow_clock_source_yields_advice() {
        let row = judge(Some("hpet"), 1234.5);
        assert_eq!((row.state, &*row.found), (CheckState::Advice, "hpet: reading the time takes 1234 ns"));
        assert_eq!(judge(Some("tsc"), 25.0).state, CheckState::Ok);
        assert_eq!(judge(Some("kvm-clock"), 40.0).state, CheckState::Ok);
        assert_eq!(judge(None, 40.0).state, CheckState::Ok);
    }

    /// Objective: reading the time takes time.
    #[test]
    fn reading_the_time_takes_time() {
        assert!(cost_ns() > 0.0);
    }
}
