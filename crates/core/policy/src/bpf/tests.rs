use super::{BeyondReach, BpfTextError, FilterProgram, Insn, MAX_INSNS, VerificationError};

/// An instruction that returns the whole frame.
const RETURN: Insn = insn(0x06, 0, 0, u32::MAX);
/// An instruction that returns A.
const RETURN_A: Insn = insn(0x16, 0, 0, 0);
/// The expression `ip`, as libpcap compiles it.
const IP: &str = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0";

const fn insn(code: u16, jt: u8, jf: u8, k: u32) -> Insn {
    Insn { code, jt, jf, k }
}

fn refusal(insns: &[Insn]) -> VerificationError {
    FilterProgram::verify(insns).expect_err("has to be refused")
}

/// Returns the value of A after the instructions have run on `frame`.
fn result(insns: &[Insn], frame: &[u8]) -> u32 {
    let insns = [insns, &[RETURN_A]].concat();
    FilterProgram::verify(&insns).unwrap().run(frame, frame.len() as u32).unwrap()
}

/// Objective: everything that bpf_check_classic of the Linux kernel refuses is refused, each with its own reason.
#[test]
fn each_refusal_has_its_reason() {
    let many = vec![RETURN; MAX_INSNS + 1];
    assert_eq!(refusal(&[]), VerificationError::Empty);
    assert_eq!(refusal(&many), VerificationError::TooLong { len: 4097 });
    assert!(FilterProgram::verify(&many[1..]).is_ok());
    for (insn, reason) in [
        (insn(0xffff, 0, 0, 0), VerificationError::UnknownCode { at: 0, code: 0xffff }),
        (insn(0x0e, 0, 0, 0), VerificationError::UnknownCode { at: 0, code: 0x0e }),
        (insn(0x104, 0, 0, 0), VerificationError::UnknownCode { at: 0, code: 0x104 }),
        (insn(0x0d, 0, 0, 0), VerificationError::UnknownCode { at: 0, code: 0x0d }),
        (insn(0x05, 0, 0, 1), VerificationError::JumpOut { at: 0 }),
        (insn(0x05, 0, 0, u32::MAX), VerificationError::JumpOut { at: 0 }),
        (insn(0x15, 1, 0, 0), VerificationError::JumpOut { at: 0 }),
        (insn(0x1d, 0, 255, 0), VerificationError::JumpOut { at: 0 }),
        (insn(0x34, 0, 0, 0), VerificationError::DivisionByZero { at: 0 }),
        (insn(0x94, 0, 0, 0), VerificationError::DivisionByZero { at: 0 }),
        (insn(0x64, 0, 0, 32), VerificationError::ShiftTooFar { at: 0, by: 32 }),
        (insn(0x74, 0, 0, 33), VerificationError::ShiftTooFar { at: 0, by: 33 }),
        (insn(0x60, 0, 0, 16), VerificationError::NoSuchCell { at: 0, cell: 16 }),
        (insn(0x02, 0, 0, 256), VerificationError::NoSuchCell { at: 0, cell: 256 }),
        (insn(0x61, 0, 0, 15), VerificationError::UnwrittenCell { at: 0, cell: 15 }),
        (insn(0x28, 0, 0, 0xffff_f000), VerificationError::Ancillary { at: 0, offset: 0xffff_f000 }),
        (insn(0x20, 0, 0, u32::MAX), VerificationError::Ancillary { at: 0, offset: u32::MAX }),
    ] {
        assert_eq!(refusal(&[insn, RETURN]), reason);
    }
    assert_eq!(refusal(&[RETURN, insn(0x87, 0, 0, 0)]), VerificationError::NoReturn { at: 1 });
}

/// Objective: a refusal is a sentence that names the instruction and its fault.
#[test]
fn refusals_are_sentences() {
    let vlan = refusal(&[RETURN, insn(0x30, 0, 0, 0xffff_f02c), RETURN]).to_string();
    assert_eq!(vlan, "instruction 1 loads the removed VLAN tag (at 0xfffff02c), which is not part of a frame");
    let cell = refusal(&[insn(0x60, 0, 0, 3), RETURN]).to_string();
    assert_eq!(cell, "instruction 0 reads cell 3 of the scratch memory, which may not have been written before");
}

/// Objective: a cell must be written on every path to its load.
///
/// Steps: a jump around the store; a store on both paths; a return before the load, which the kernel counts as a path
/// to the load.
#[test]
fn cells_are_written_on_each_way_to_where_they_are_read() {
    let store = insn(0x02, 0, 0, 7);
    let load = insn(0x60, 0, 0, 7);
    let around = [insn(0x15, 1, 0, 0), store, load, RETURN_A];
    assert_eq!(refusal(&around), VerificationError::UnwrittenCell { at: 2, cell: 7 });
    let both = [insn(0x15, 0, 2, 0), store, insn(0x05, 0, 0, 1), store, load, RETURN_A];
    assert!(FilterProgram::verify(&both).is_ok());
    let behind_return = [insn(0x15, 0, 2, 0), store, insn(0x05, 0, 0, 1), RETURN, load, RETURN_A];
    assert_eq!(refusal(&behind_return), VerificationError::UnwrittenCell { at: 4, cell: 7 });
    assert!(FilterProgram::verify(&[insn(0x05, 0, 0, 1), load, RETURN]).is_ok(), "nothing leads to the load");
}

/// Objective: arithmetic uses 32-bit words and never fails: results wrap, bits are shifted out, or the program ends.
#[test]
fn arithmetic_wraps_or_ends() {
    let constants = |a, x| [insn(0x00, 0, 0, a), insn(0x01, 0, 0, x)];
    for (code, a, x, expected) in [
        (0x0c, u32::MAX, 2, 1),
        (0x1c, 1, 2, u32::MAX),
        (0x2c, 1 << 31, 2, 0),
        (0x3c, 7, 2, 3),
        (0x3c, 7, 0, 0),
        (0x9c, 7, 4, 3),
        (0x9c, 7, 0, 0),
        (0xac, 6, 3, 5),
        (0x6c, 1, 31, 1 << 31),
        (0x6c, 1, 32, 0),
        (0x7c, 1 << 31, 31, 1),
        (0x7c, 1 << 31, u32::MAX, 0),
    ] {
        let insns = [&constants(a, x)[..], &[insn(code, 0, 0, 0)]].concat();
        assert_eq!(result(&insns, &[]), expected, "code {code:#x} of {a} and {x}");
    }
    assert_eq!(result(&[insn(0x00, 0, 0, 1), insn(0x84, 0, 0, 0)], &[]), u32::MAX);
    let ends = [&constants(7, 0)[..], &[insn(0x3c, 0, 0, 0), insn(0x00, 0, 0, 5)]].concat();
    assert_eq!(result(&ends, &[]), 0, "the program ends at a division by zero");
}

/// Objective: a load that is in the frame but beyond the passed bytes requests the whole frame; a load past the frame's
/// end ends the program with 0.
#[test]
fn loads_ask_for_more_only_within_the_frame() {
    let word_at = |k| FilterProgram::verify(&[insn(0x20, 0, 0, k), RETURN]).unwrap();
    let head = [0; 8];
    assert_eq!(word_at(4).run(&head, 12), Ok(u32::MAX));
    assert_eq!(word_at(5).run(&head, 12), Err(BeyondReach));
    assert_eq!(word_at(8).run(&head, 12), Err(BeyondReach));
    assert_eq!(word_at(9).run(&head, 12), Ok(0));
    assert_eq!(word_at(0xfff0_0000).run(&head, 12), Ok(0));
    assert_eq!(word_at(4).run(&head, 7), Ok(0), "bytes behind the frame's end are not read");
    let overflow = [insn(0x01, 0, 0, u32::MAX), insn(0x50, 0, 0, 1), RETURN];
    assert_eq!(
        FilterProgram::verify(&overflow).unwrap().run(&head, u32::MAX),
        Ok(0),
        "X and k are not added modulo 2^32"
    );
}

/// Objective: a program returns the same for a frame in two parts as for the whole frame, wherever the frame is split,
/// even within a load.
#[test]
fn parts_are_as_the_whole() {
    let programs = [
        vec![insn(0x20, 0, 0, 3), RETURN_A],
        vec![insn(0x20, 0, 0, 9), RETURN_A],
        vec![insn(0x28, 0, 0, 10), RETURN_A],
        vec![insn(0x30, 0, 0, 12), RETURN_A],
        vec![insn(0x80, 0, 0, 0), RETURN_A],
        vec![insn(0xb1, 0, 0, 1), insn(0x48, 0, 0, 2), RETURN_A],
        vec![insn(0x28, 0, 0, 4), insn(0x15, 0, 1, 0x0506), RETURN, RETURN_A],
        vec![insn(0x01, 0, 0, u32::MAX), insn(0x50, 0, 0, 1), RETURN],
    ];
    let frame: Vec<u8> = (1..=12).collect();
    for insns in &programs {
        let program = FilterProgram::verify(insns).unwrap();
        let whole = program.run(&frame, 12).unwrap();
        for at in 0..=frame.len() {
            let (first, second) = frame.split_at(at);
            assert_eq!(program.run_parts(first, second), whole, "{program} parted at {at}");
        }
    }
}

/// Objective: a load and a comparison have the same result in one step as in two, even if a jump leads to the
/// comparison.
#[test]
fn a_jump_may_lead_between_a_load_and_its_comparison() {
    let insns = [
        insn(0x00, 0, 0, 0x0800),
        insn(0x30, 0, 1, 0),
        insn(0x15, 1, 0, 1),
        insn(0x28, 0, 0, 2),
        insn(0x15, 0, 1, 1),
        RETURN_A,
        insn(0x06, 0, 0, 9),
    ];
    let program = FilterProgram::verify(&insns).unwrap();
    assert_eq!(program.run(&[1, 0, 8, 0], 4), Ok(1), "the byte jumps to the comparison of the halfword");
    assert_eq!(program.run(&[2, 0, 0, 1], 4), Ok(1), "A keeps the halfword");
    assert_eq!(program.run(&[2, 0, 8, 0], 4), Ok(9));
}

/// Objective: the reach of a program covers all loads that it can make, and is `None` if the program does not limit its
/// loads.
#[test]
fn the_reach_covers_fixed_places_and_ip_headers() {
    let reach = |insns: &[Insn]| FilterProgram::verify(&[insns, &[RETURN]].concat()).unwrap().reach();
    let header = insn(0xb1, 0, 0, 14);
    let port = insn(0x48, 0, 0, 16);
    assert_eq!(FilterProgram::parse(IP).unwrap().reach(), Some(14));
    assert_eq!(reach(&[]), Some(0));
    assert_eq!(reach(&[header]), Some(15));
    assert_eq!(reach(&[header, port]), Some(60 + 18));
    assert_eq!(reach(&[insn(0x20, 0, 0, 0), insn(0x07, 0, 0, 0), port]), None, "X is any word");
    assert_eq!(reach(&[insn(0x81, 0, 0, 0), port]), None, "X is the frame's length");
    assert_eq!(reach(&[insn(0x05, 0, 0, 1), insn(0x20, 0, 0, 100)]), Some(0), "nothing leads to the load");
    let byte_as_index = [insn(0x30, 0, 0, 0), insn(0x54, 0, 0, 0xf0), insn(0x74, 0, 0, 2), insn(0x07, 0, 0, 0)];
    assert_eq!(reach(&[&byte_as_index[..], &[port]].concat()), Some(60 + 18), "the same length, computed");
    let two_ways = [insn(0x15, 0, 1, 0), header, port];
    assert_eq!(reach(&two_ways), Some(60 + 18), "the greater of two paths counts");
}

/// Objective: a printed program reads back as the same program; line ends and commas are equivalent.
#[test]
fn text_goes_both_ways() {
    let program = FilterProgram::parse(IP).unwrap();
    assert_eq!(program.to_string(), IP);
    assert_eq!(program.insns()[1], insn(21, 0, 1, 2048));
    for text in
        ["4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n", " 4 40 0 0 12,21 0 1 2048 , 6 0 0 262144 6 0 0 0,"]
    {
        assert_eq!(text.parse(), Ok(program.clone()));
    }
}

/// Objective: each error in a text has its own reason.
#[test]
fn wrong_text_is_named() {
    let no_number = |word: &str| BpfTextError::NoNumber { word: word.into() };
    for (text, reason) in [
        ("", BpfTextError::Empty),
        (" ,\n", BpfTextError::Empty),
        ("one", no_number("one")),
        ("1,6 0 0 -1", no_number("-1")),
        ("1,6 0 0 4294967296", no_number("4294967296")),
        ("1,6 256 0 0", no_number("256")),
        ("1,65536 0 0 0", no_number("65536")),
        ("1,6 0 0", BpfTextError::Unfinished { at: 0 }),
        ("2,6 0 0 0", BpfTextError::Count { announced: 2, found: 1 }),
        ("1,6 0 0 0,6 0 0 0", BpfTextError::Count { announced: 1, found: 2 }),
        ("0", BpfTextError::Unverified(VerificationError::Empty)),
        ("1,7 0 0 0", BpfTextError::Unverified(VerificationError::NoReturn { at: 0 })),
    ] {
        assert_eq!(FilterProgram::parse(text), Err(reason), "{text:?}");
    }
}
