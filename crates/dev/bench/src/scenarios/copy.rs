//! The bench's self-test: one core copies frames between buffers, at netvale's stride and at netmap's stride of 2,048
//! bytes.
//!
//! Buffers whose addresses are equal modulo 2 KiB share few sets of the first-level cache and evict one another. A
//! stride of 33 cache lines distributes them. The peer here is the aligned stride; both sides run the same code.

use std::hint::black_box;

use super::*;

/// Bytes of a cache line; both strides are multiples of it.
const LINE: usize = 64;
/// netmap's traditional buffer size.
const ALIGNED: usize = 2048;
/// netvale's default buffer size: 33 lines.
const SPREAD: usize = 2112;
/// Passes over all slots between two checks of the clock.
const PASSES: u64 = 16;

/// The scenario. `batch` is the number of slots that are used in turn.
pub const SCENARIO: Scenario = Scenario {
    name: "copy",
    about: "one core copying frames between buffers, stride 2112 (ours) against 2048: the harness's self-test",
    variants: &[Variant { name: "one-core", frame_bytes: &[64], batch: &[1024], ports: &[1], ..Variant::TWO_PORTS }],
    needs: &[ONE],
    start: |case, cores| start(case, cores, SPREAD),
};

/// Returns the peer: copying at a stride of 2 KiB.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "stride-2048", "one core copying frames at netmap's stride of 2,048 bytes";
        SCENARIO.needs, |case| SCENARIO.has(case), |case, cores| start(case, cores, ALIGNED);
    }
}

fn start(case: &Case, cores: Cores, stride: usize) -> Result<Session> {
    let lines = (case.frame_bytes as usize).div_ceil(LINE);
    if lines * LINE > ALIGNED || lines == 0 {
        return Err(BenchError::Usage(format!("copy: expected 1 to {ALIGNED} bytes, found {}", case.frame_bytes)));
    }
    let slots = case.batch.clamp(1, 1 << 20) as usize;
    let from = Buffers::new(slots, stride);
    let mut to = Buffers::new(slots, stride);
    let own = case.clone();
    let measuring = move |window| {
        let round = || {
            for _ in 0..PASSES {
                copy_all(&from, &mut to, lines);
                black_box(to.lines_mut());
            }
            Ok(PASSES * u64::from(own.batch.max(1)))
        };
        let (done, beside) = run_pinned(vec![Job::new(cores.0, round)], window)?;
        Ok(Sample::new(own.rate(total_rate("copy", &done)?), beside))
    };
    Ok(Session::new(format!("one thread on CPU {}", cores.0), true, measuring).fact("slots", case.batch))
}

/// One cache line, aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u8; LINE]);

/// Buffers whose starts are one stride apart; the first one starts at a multiple of 2 KiB.
struct Buffers {
    memory: Vec<Line>,
    first: usize,
    lines_a_buffer: usize,
}

impl Buffers {
    fn new(slots: usize, stride: usize) -> Self {
        let lines_a_buffer = stride / LINE;
        let memory = vec![Line([1; LINE]); slots * lines_a_buffer + 2 * ALIGNED / LINE];
        // The gap is in bytes and a multiple of a line, because lines are aligned.
        let gap = memory.as_ptr().cast::<u8>().align_offset(ALIGNED);
        Self { memory, first: gap / LINE, lines_a_buffer }
    }

    fn lines(&self) -> &[Line] {
        self.memory.get(self.first..).unwrap_or_default()
    }

    fn lines_mut(&mut self) -> &mut [Line] {
        self.memory.get_mut(self.first..).unwrap_or_default()
    }
}

/// Copies the first `lines` lines of each buffer.
fn copy_all(from: &Buffers, to: &mut Buffers, lines: usize) {
    match lines {
        // The number of lines is a constant: a loop of variable length costs more than the copy of one line.
        1 => copy_lines(from, to, |target, source| copy_first(target, source, 1)),
        _ => copy_lines(from, to, |target, source| copy_first(target, source, lines)),
    }
}

fn copy_lines(from: &Buffers, to: &mut Buffers, copy: impl Fn(&mut [Line], &[Line])) {
    let stride = from.lines_a_buffer;
    let sources = from.lines().chunks_exact(stride);
    for (source, target) in sources.zip(to.lines_mut().chunks_exact_mut(stride)) {
        copy(target, source);
    }
}

#[inline(always)]
fn copy_first(target: &mut [Line], source: &[Line], lines: usize) {
    if let (Some(target), Some(source)) = (target.get_mut(..lines), source.get(..lines)) {
        target.copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: of every buffer, exactly the lines that the frame fills are copied, at both strides.
    #[test]
    fn copies_what_it_says() {
        for stride in [ALIGNED, SPREAD] {
            let from = Buffers::new(8, stride);
            let mut to = Buffers::new(8, stride);
            to.memory.fill(Line([0; LINE]));
            copy_all(&from, &mut to, 2);
            for buffer in to.lines().chunks_exact(stride / LINE).take(8) {
                assert!(buffer.iter().take(2).all(|line| *line == Line([1; LINE])));
                assert!(buffer.iter().skip(2).all(|line| *line == Line([0; LINE])));
            }
        }
    }

    /// Objective: a frame that does not fit is refused, and the error states the limits.
    #[test]
    fn refuses_frames_that_do_not_fit() {
        for frame_bytes in [0, 2049] {
            let mut case = SCENARIO.cases(&Default::default()).remove(0);
            case.frame_bytes = frame_bytes;
            let error = (SCENARIO.start)(&case, Cores(0, 0)).map(drop).expect_err("does not fit");
            assert!(error.to_string().contains("2048"), "{error}");
        }
    }
}
