//! Runs arbitrary filters on arbitrary frames.
//!
//! Input: one byte with the number of instructions, the instructions of eight bytes each, as in a little-endian `struct
//! sock_filter`, and the frame.
#![cfg_attr(feature = "libfuzzer", no_main)]

#[path = "../../../crates/core/policy/tests/it/with_programs/bpf/pcap.rs"]
mod pcap;

use std::sync::LazyLock;

use netvale_fuzz::{FuzzInput, fuzz_target};
use netvale_policy::bpf::{BeyondReach, FilterProgram, Insn};
use pcap::Pcap;

/// libpcap's interpreter, whose results are compared; `None` on a machine without libpcap, where only the results of
/// netvale's interpreter are compared with each other.
static PCAP: LazyLock<Option<Pcap>> = LazyLock::new(|| Pcap::load().ok());

fuzz_target!(|data: &[u8]| {
    let mut input = FuzzInput(data);
    let insns: Vec<_> = (0..input.byte()).map(|_| insn(&mut input)).collect();
    let Ok(program) = FilterProgram::verify(&insns) else { return };
    assert_eq!(FilterProgram::parse(&program.to_string()).as_ref(), Ok(&program));
    let answer = run(&program, input.0);
    if let Some(pcap) = *PCAP {
        let judge = pcap.judge(&program).expect("libpcap takes what we take");
        assert_eq!(answer, judge.run(input.0), "{program}");
    }
});

fn insn(input: &mut FuzzInput<'_>) -> Insn {
    Insn { code: input.half(), jt: input.byte(), jf: input.byte(), k: input.word() }
}

/// Runs a program on the whole frame and on several of the frame's first parts. A part must yield the same result, or
/// [`BeyondReach`]. Returns the result for the whole frame.
fn run(program: &FilterProgram, frame: &[u8]) -> u32 {
    let part = |bytes: usize| program.run(&frame[..bytes.min(frame.len())], frame.len() as u32);
    let whole = part(frame.len()).expect("nothing is beyond a whole frame");
    for bytes in [0, 1, 16, 64, frame.len() / 2] {
        let answer = part(bytes);
        assert!(answer == Ok(whole) || answer == Err(BeyondReach), "{program}: {answer:?}");
    }
    if let Some(reach) = program.reach() {
        assert_eq!(part(reach as usize), Ok(whole), "{program}: the reach is {reach}");
    }
    whole
}
