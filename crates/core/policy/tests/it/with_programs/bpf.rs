//! Filters, compared with libpcap's interpreter and with the Linux kernel.

mod expressions;
mod frames;
mod kernel;
mod pcap;
mod programs;

use expressions::{EXPRESSIONS, LOOPS};
use netvale_policy::bpf::{BeyondReach, FilterProgram, Insn, VerificationError};
use pcap::Pcap;
use proptest::collection::vec;
use proptest::prelude::*;

/// Number of random programs per test.
const CASES: u32 = 20_000;
const RETURN_A: Insn = Insn { code: 0x16, jt: 0, jf: 0, k: 0 };

fn libpcap() -> Option<Pcap> {
    Pcap::load().map_err(|reason| netvale_harness::skip(&reason.to_string())).ok()
}

/// Whether the kernel accepts any filter programs from this process: in some sandboxes there are no socket filters.
fn kernel_judges() -> bool {
    let verdict = kernel::takes(&[RETURN_A]);
    match &verdict {
        Ok(true) => {}
        Ok(false) => netvale_harness::skip("the kernel takes no socket filter"),
        Err(error) => netvale_harness::skip(&format!("the kernel takes no socket filter: {error}")),
    }
    matches!(verdict, Ok(true))
}

/// Runs a program on a whole frame and on its first bytes, and asserts that all results agree.
fn run(program: &FilterProgram, frame: &[u8]) -> u32 {
    let len = frame.len() as u32;
    let part = |bytes: usize| program.run(&frame[..bytes.min(frame.len())], len);
    let whole = part(frame.len()).expect("no load is beyond a whole frame");
    for bytes in [0, 16, 64, 128] {
        let answer = part(bytes);
        assert!(answer == Ok(whole) || answer == Err(BeyondReach) && bytes < frame.len(), "{bytes} bytes: {answer:?}");
    }
    if let Some(reach) = program.reach() {
        assert_eq!(part(reach as usize), Ok(whole), "the reach is {reach}");
    }
    whole
}

/// Objective: every program that libpcap compiles is accepted, and accepts the same frames as in libpcap's interpreter.
///
/// Steps: expressions of all primitives run, with and without optimisation, on frames of all protocols, truncated at
/// every length. Each expression must accept some frames and refuse others, otherwise it tests little.
#[test]
fn expressions_want_what_libpcap_says_they_want() {
    let Some(pcap) = libpcap() else { return };
    let frames = frames::frames();
    let mut alike = Vec::new();
    for (expression, optimise) in EXPRESSIONS.iter().flat_map(|e| [(e, true), (e, false)]) {
        let insns = pcap.compile(expression, optimise).unwrap();
        let program = FilterProgram::verify(&insns).unwrap_or_else(|reason| panic!("{expression}: {reason}"));
        assert_eq!(FilterProgram::parse(&program.to_string()), Ok(program.clone()), "{expression}");
        let judge = pcap.judge(&program).expect("libpcap accepts a program that it has compiled");
        let mut verdicts = [0; 2];
        for cut in frames.iter().flat_map(|frame| (0..=frame.len()).map(|len| &frame[..len])) {
            let verdict = run(&program, cut);
            assert_eq!(verdict, judge.run(cut), "{expression}: {cut:02x?}\n{program}");
            verdicts[usize::from(verdict != 0)] += 1;
        }
        if verdicts.contains(&0) {
            alike.push((expression, verdicts));
        }
    }
    assert_eq!(alike, [], "expressions with the same result for all frames");
}

/// Objective: programs that jump backwards, with which libpcap follows chains of headers, are refused for that reason.
#[test]
fn programs_with_loops_are_refused() {
    let Some(pcap) = libpcap() else { return };
    for (expression, optimise) in LOOPS.iter().flat_map(|e| [(e, true), (e, false)]) {
        let insns = pcap.compile(expression, optimise).unwrap();
        let refusal = FilterProgram::verify(&insns).expect_err(expression);
        assert!(matches!(refusal, VerificationError::JumpOut { .. }), "{expression}: {refusal}");
    }
}

/// Objective: the reach (the number of bytes at a frame's start that a program reads) is known for all programs that
/// libpcap compiles, except those with computed offsets.
#[test]
fn the_reach_of_usual_expressions_is_known() {
    let Some(pcap) = libpcap() else { return };
    for (expression, most) in [
        ("ip", 14),
        ("udp port 53", 78),
        ("vlan 7 and tcp dst port 80", 82),
        ("host 10.0.0.1 and not ether multicast", 42),
        ("tcp[tcpflags] & tcp-syn != 0", 88),
    ] {
        for optimise in [true, false] {
            let program = FilterProgram::verify(&pcap.compile(expression, optimise).unwrap()).unwrap();
            let reach = program.reach().unwrap_or(u32::MAX);
            assert!(reach <= most, "{expression}: {reach}\n{program}");
        }
    }
}

/// Asserts that a program is accepted if and only if the kernel accepts it, except for loads that only the kernel
/// supports.
fn kernel_agrees(insns: &[Insn]) {
    let ours = FilterProgram::verify(insns);
    if matches!(ours, Err(VerificationError::Ancillary { .. })) {
        return;
    }
    match kernel::takes(insns) {
        Ok(theirs) => assert_eq!(theirs, ours.is_ok(), "the kernel's result is first: {ours:?}\n{insns:?}"),
        Err(error) => panic!("the kernel neither accepts nor refuses: {error}"),
    }
}

/// Objective: for all codes, with constants around every limit, exactly those instructions are accepted that the kernel
/// accepts.
#[test]
fn single_instructions_are_judged_as_by_the_kernel() {
    if !kernel_judges() {
        return;
    }
    for code in (0..0x200).chain([0x1020, 0x8006, 0xffff]) {
        for k in [0, 1, 2, 15, 16, 31, 32, 255, 0x7fff_ffff, u32::MAX] {
            for (jt, jf) in [(0, 0), (1, 0), (0, 2), (255, 255)] {
                kernel_agrees(&[Insn { code, jt, jf, k }, RETURN_A, RETURN_A]);
                kernel_agrees(&[RETURN_A, Insn { code, jt, jf, k }]);
            }
        }
    }
}

/// Objective: a program may be as long as in the kernel, and no longer.
#[test]
fn the_longest_program_is_the_kernels() {
    if !kernel_judges() {
        return;
    }
    for len in [0, 1, 4096, 4097] {
        kernel_agrees(&vec![RETURN_A; len]);
    }
}

/// Objective: unusual programs have the same results as in libpcap, and an accepted program never causes a panic.
#[test]
fn random_programs_answer_as_libpcaps() {
    let pcap = libpcap();
    let frames = vec(vec(any::<u8>(), 0..100), 1..5);
    proptest!(ProptestConfig::with_cases(CASES), |(insns in programs::nearly_right(), frames in frames)| {
        let Ok(program) = FilterProgram::verify(&insns) else { return Ok(()) };
        prop_assert_eq!(FilterProgram::parse(&program.to_string()), Ok(program.clone()));
        let judge = pcap.map(|pcap| pcap.judge(&program).expect("libpcap accepts an accepted program"));
        for frame in &frames {
            let answer = run(&program, frame);
            prop_assert_eq!(judge.as_ref().map_or(answer, |judge| judge.run(frame)), answer);
        }
    });
}

/// Objective: exactly those random programs are accepted that the kernel accepts.
#[test]
fn random_programs_are_judged_as_by_the_kernel() {
    if !kernel_judges() {
        return;
    }
    let programs = prop_oneof![programs::nearly_right(), programs::arbitrary()];
    proptest!(ProptestConfig::with_cases(CASES), |(insns in programs)| kernel_agrees(&insns));
}
