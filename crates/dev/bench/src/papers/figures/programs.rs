//! The first document's experiments: programs that send, the parts of a packet's time, a packet filter, and forwarding.

use super::{Column, PaperFigure, Reading, Run, Table, TableRow, mpps};
use crate::papers::published::{FORWARDING, GENERATORS};

/// Programs that send through a socket, the kernel or netmap, by their share of a CPU.
pub const GENERATORS_BY_CLOCK: PaperFigure = PaperFigure {
    number: "1.1",
    title: "Generators by clock and by cores",
    about: "A program sends 64-byte frames at several clock rates: a socket program (netsend), the kernel's pktgen, \
        and netmap on one core and on four. According to the text, netmap fills the line from a third of the full \
        clock rate on, and at the full rate is 40 times as fast as the socket program and 10 times as fast as pktgen.",
    here: "A quota of CPU time, in periods of 10 ms, replaces the clock: the sending process gets that share of one \
        CPU. There is no physical line. The far end of a veth cable is processed on the sender's CPU, within its \
        share; a switch and its receiver, or the receiver at a pipe, have another CPU. netvale opens the cable by \
        AF_XDP, which copies frames into the kernel's buffers. Several senders each have their own CPU, and their own \
        cable, switch or pipe; with fewer than two CPUs per sender, receivers share theirs.",
    see: "The rate of each sender grows with its share, since a frame costs the same at each. A pipe and a switch \
        carry many times the rate of a socket; on the cable, the kernel's work per frame limits all senders.",
    runs: &[Run { scenario: "generators", setup: 2 }],
    tables: &[
        Table {
            title: "By share of one CPU, Mpps",
            columns: &[
                mpps("10 %", "10-percent"),
                mpps("25 %", "25-percent"),
                mpps("50 %", "50-percent"),
                mpps("75 %", "75-percent"),
                mpps("100 %", "100-percent"),
            ],
            rows: &[
                TableRow::of(&GENERATORS[0], "udp-sendto"),
                TableRow::ours("UDP by sendmmsg", "udp-sendmmsg"),
                TableRow::ours("AF_PACKET", "af-packet"),
                TableRow::of(&GENERATORS[1], "pktgen"),
                TableRow::of(&GENERATORS[2], "netvale"),
                TableRow::ours("netvale on a VALE switch", "netvale-vale"),
                TableRow::ours("netvale on a pipe", "netvale-pipe"),
            ],
            base: Some("udp-sendto"),
            ..Table::PLAIN
        },
        Table {
            title: "By number of senders, one CPU each, Mpps",
            columns: &[mpps("1", "100-percent"), mpps("2", "2-senders"), mpps("4", "4-senders")],
            rows: &[
                TableRow::ours("UDP by sendto", "udp-sendto"),
                TableRow::ours("UDP by sendmmsg", "udp-sendmmsg"),
                TableRow::ours("AF_PACKET", "af-packet"),
                TableRow::ours("the kernel's pktgen", "pktgen"),
                TableRow::ours("netvale on veth cables", "netvale"),
                TableRow::ours("netvale on VALE switches", "netvale-vale"),
                TableRow::ours("netvale on pipes", "netvale-pipe"),
            ],
            base: Some("udp-sendto"),
            ..Table::PLAIN
        },
    ],
    missing: &["pktgen with a share of a CPU: no control group limits a kernel thread."],
};

/// The parts of the time that sending a packet takes.
pub const PARTS_OF_SENDING: PaperFigure = PaperFigure {
    number: "1.3",
    title: "Where a packet's time goes",
    about: "The cost of a packet that a program sends through a socket. Printed: the system call takes 50 %, the \
        allocation of buffers 30 %; the copy and the driver share the rest equally.",
    here: "A timer samples the instructions of the sending thread, in the kernel and outside it. The name of the \
        function, in netvale the source file, assigns each sample to a part. The driver is that of veth, and includes \
        the far end, which drops the frame in the sender's thread. The timer's interrupt is delayed while the kernel \
        has interrupts off, so such samples appear at the end of these sections. Functions that belong to no part, \
        such as locks and interrupts, are counted as other. netvale's own paths are the work of one thread from end \
        to end; its program writes and reads the first line of each frame.",
    see: "With a socket, the program's own work is negligible beside the kernel's; sending many datagrams per call \
        saves the call only. netvale's paths have no system call, buffer allocation or driver: they consist of the \
        program, its rings, and, through a switch, forwarding and one copy.",
    runs: &[Run { scenario: "parts", setup: 10 }],
    tables: &[
        Table {
            title: "Through the kernel to the far end of a veth pair, parts in percent",
            columns: RATE,
            rows: &[
                TableRow::ours("UDP by sendto", "udp-sendto"),
                TableRow::ours("UDP by sendmmsg", "udp-sendmmsg"),
                TableRow::ours("AF_PACKET, sendmmsg", "af-packet"),
                TableRow::ours("netvale, by AF_XDP", "netvale"),
            ],
            base: Some("udp-sendto"),
            facts: &[
                ("ns", "ns per frame"),
                ("call", "system call"),
                ("buffers", "buffers"),
                ("copy", "copy"),
                ("stack", "rest of the stack"),
                ("driver", "driver and far end"),
                ("sync", "netvale's rings"),
                ("program", "program"),
                ("other", "other"),
            ],
        },
        Table {
            title: "netvale's own paths, parts in percent",
            columns: RATE,
            rows: &[TableRow::ours("a VALE switch", "netvale-vale"), TableRow::ours("a pipe", "netvale-pipe")],
            facts: &[
                ("ns", "ns per frame"),
                ("program", "program: fill and read"),
                ("sync", "sync"),
                ("switch", "switch"),
                ("copy", "copy"),
                ("notify", "notify"),
                ("other", "other"),
            ],
            ..Table::PLAIN
        },
    ],
    missing: &[],
};

const RATE: &[Column] = &[Column::of("kpps", "send", Reading::Kpps)];

const FILTERED: &[TableRow] = &[TableRow::ours("netvale's example firewall", "netvale")];
const BOTH: &[TableRow] = &[FILTERED[0], TableRow::ours("the stack without a filter", "linux-stack")];
const ALL_PASS: &[Column] = &[mpps("examined, Mpps", "all-pass")];
const HALF_DROPPED: &[Column] = &[mpps("examined, Mpps", "half-dropped")];
const ALL_DROPPED: &[Column] = &[mpps("examined, Mpps", "all-dropped")];
const FROM_STACK: &[Column] = &[mpps("examined, Mpps", "from-stack")];

const fn filter(title: &'static str, columns: &'static [Column], rows: &'static [TableRow]) -> Table {
    Table { title, columns, rows, base: None, facts: &[("passed", "passed, Mpps"), ("dropped", "dropped, Mpps")] }
}

/// A program that drops packets between an interface and the kernel's stack.
pub const PACKET_FILTER: PaperFigure = PaperFigure {
    number: "1.4",
    title: "A packet filter between NIC rings and host rings",
    about: "A program opens the rings of an interface and its host rings, and passes what no rule drops by swapping \
        buffers. No values are printed.",
    here: "The interface is one end of a veth cable. A TAP provides the host rings: the daemon writes each passing \
        frame to it, or reads it, by a system call on the CPU of the filter. Two flows go to the stack, as fast as \
        packet sockets send them; a UDP socket sends from the stack.",
    see: "Dropping is cheap, since it happens in the rings. Each passing frame costs a system call and a way through \
        a TAP, which limit the rate.",
    runs: &[Run { scenario: "filter", setup: 2 }],
    tables: &[
        filter("To the stack, a rule that matches nothing", ALL_PASS, BOTH),
        filter("To the stack, a rule for one of two flows", HALF_DROPPED, FILTERED),
        filter("To the stack, a rule for both", ALL_DROPPED, FILTERED),
        filter("From the stack, a rule that matches nothing", FROM_STACK, BOTH),
    ],
    missing: &[],
};

/// Frames that a program forwards between two interfaces.
pub const FORWARDED: PaperFigure = PaperFigure {
    number: "1.2",
    title: "Forwarding between two interfaces",
    about: "60-byte frames from one interface to another, through the kernel's bridge, netmap's bridge, the same \
        program over libpcap, and switches.",
    here: "The interfaces are ends of veth pairs: every figure includes the kernel's path to and from them, and a \
        program that opens them by AF_XDP copies frames.",
    see: "A program on netmap's rings forwards more than the kernel's bridge, but far from as much as in the paper: \
        the kernel's path to and from the cable limits all programs. The libpcap program is slower with netvale's \
        libpcap than with the system's, unlike in the paper: each sends every frame immediately, which takes one \
        system call with the system's. With netvale's, each frame wakes the daemon, which shares the program's CPU.",
    runs: &[Run { scenario: "nic", setup: 3 }],
    tables: &[Table {
        columns: &[mpps("Mpps", "bridge")],
        rows: &[
            TableRow::of(&FORWARDING[0], "linux-bridge"),
            TableRow::of(&FORWARDING[1], "netvale"),
            TableRow::of(&FORWARDING[2], "pcap-netvale"),
            TableRow::ours("the same program over the system's libpcap", "pcap"),
            TableRow::of(&FORWARDING[3], "ovs-netdev"),
            TableRow::ours("DPDK's testpmd on AF_XDP", "dpdk-af-xdp"),
            TableRow::ours("a bare loop on AF_XDP", "af-xdp"),
        ],
        base: Some("linux-bridge"),
        ..Table::PLAIN
    }],
    missing: &["Click: Debian no longer has it."],
};
