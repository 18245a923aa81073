//! What single programs send, where its time goes, and what a filter lets pass.

use super::{Column, PaperFigure, Reading, Run, Table, TableRow, mpps};
use crate::papers::published::{FORWARDING, GENERATORS};

/// Generators.
pub const GENERATORS_BY_CLOCK: PaperFigure = PaperFigure {
    number: "1.1",
    title: "Generators by clock and by cores",
    about: "64-byte frames that a program sends, by the clock of its processor: a socket program (netsend), the \
        kernel's pktgen, and netmap with 1 and 4 cores. The text says: netmap fills the line from a third of the \
        clock on, 40 times the socket program and 10 times pktgen at full clock.",
    here: "A quota of CPU time stands for the clock, in periods of 10 ms: the sending process has that share of one \
        CPU. There is no line: a veth cable's far end is done by the sender's own CPU, within its share, while a \
        switch, and the receiver behind it or behind a pipe, have another CPU. netvale has the cable's end by AF_XDP, \
        which copies frames into the kernel's buffers. With several senders each has a CPU and a cable, switch or pipe \
        of its own; where there are not twice as many CPUs, receivers share theirs.",
    see: "Each sender's rate grows with its share, as a frame costs it the same. A pipe and a switch take many times \
        what a socket sends; on the cable the kernel's own work for a frame bounds all of them.",
    runs: &[Run {
        scenario: "generators",
        variants: &["10-percent", "25-percent", "50-percent", "75-percent", "100-percent", "2-senders", "4-senders"],
        peers: &["udp-sendto", "udp-sendmmsg", "af-packet", "netvale-vale", "netvale-pipe", "pktgen"],
        setup: 2,
    }],
    tables: &[
        Table {
            title: "By the share of one CPU, Mpps",
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
            facts: &[],
        },
        Table {
            title: "By the number of senders, a CPU each, Mpps",
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
            facts: &[],
        },
    ],
    missing: &["pktgen with a share of a CPU: a thread of the kernel's is in no control group that limits it."],
};

/// Where the time goes.
pub const PARTS_OF_SENDING: PaperFigure = PaperFigure {
    number: "1.3",
    title: "Where a packet's time goes",
    about: "What a packet costs that a program sends by a socket. Printed: the system call 50 %, the allocation of \
        buffers 30 %, the rest equally the copy and the driver.",
    here: "The sending thread's instructions are sampled by the clock, the kernel's included, and each belongs to a \
        part by its function's name, in netvale by its source file. The driver is a veth's, and with it comes the \
        far end, which drops the frame in the sender's thread. A clock that is an interrupt does not see what the \
        kernel does with interrupts off: it sees that at its end. What no row of functions names is other: locks, \
        interrupts. netvale's own paths are one thread's work from end to end; its program writes each frame's first \
        line, and reads it.",
    see: "By a socket, the program's own work is next to nothing beside the kernel's parts; many datagrams a call save \
        the call, not the rest. netvale's paths have no call, no buffers and no driver: they are the program, its \
        rings, and for a switch forwarding and one copy.",
    runs: &[Run {
        scenario: "parts",
        variants: &["send"],
        peers: &["udp-sendto", "udp-sendmmsg", "af-packet", "netvale-vale", "netvale-pipe"],
        setup: 10,
    }],
    tables: &[
        Table {
            title: "Through the kernel to a veth's far end, parts in per cent",
            columns: RATE,
            rows: &[
                TableRow::ours("UDP by sendto", "udp-sendto"),
                TableRow::ours("UDP by sendmmsg", "udp-sendmmsg"),
                TableRow::ours("AF_PACKET, sendmmsg", "af-packet"),
                TableRow::ours("netvale, by AF_XDP", "netvale"),
            ],
            base: Some("udp-sendto"),
            facts: &[
                ("ns", "ns a frame"),
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
            title: "netvale's own paths, parts in per cent",
            columns: RATE,
            rows: &[TableRow::ours("a VALE switch", "netvale-vale"), TableRow::ours("a pipe", "netvale-pipe")],
            base: None,
            facts: &[
                ("ns", "ns a frame"),
                ("program", "program: fill and read"),
                ("sync", "sync"),
                ("switch", "switch"),
                ("copy", "copy"),
                ("notify", "notify"),
                ("other", "other"),
            ],
        },
    ],
    missing: &[],
};

const RATE: &[Column] = &[Column::of("kpps", "send", Reading::Kpps)];

const FILTERED: &[TableRow] = &[TableRow::ours("netvale's example firewall", "netvale")];
const BOTH: &[TableRow] = &[FILTERED[0], TableRow::ours("the stack without a filter before it", "linux-stack")];
const ALL_PASS: &[Column] = &[mpps("judged, Mpps", "all-pass")];
const HALF_DROPPED: &[Column] = &[mpps("judged, Mpps", "half-dropped")];
const ALL_DROPPED: &[Column] = &[mpps("judged, Mpps", "all-dropped")];
const FROM_STACK: &[Column] = &[mpps("judged, Mpps", "from-stack")];

const fn filter(title: &'static str, columns: &'static [Column], rows: &'static [TableRow]) -> Table {
    Table { title, columns, rows, base: None, facts: &[("passed", "passed, Mpps"), ("dropped", "dropped, Mpps")] }
}

/// The filter.
pub const PACKET_FILTER: PaperFigure = PaperFigure {
    number: "1.4",
    title: "A packet filter between NIC rings and host rings",
    about: "A program that has an interface's rings and its host rings, and passes on what no rule drops, by swapping \
        buffers. No values are printed.",
    here: "The interface is one end of a veth cable. A TAP stands for the host rings: a frame that passes is written \
        to it, or read from it, by a system call of the daemon's, on the CPU that the filter has, too. To the stack go \
        two flows together, as fast as packet sockets send them; from the stack, the datagrams of a UDP socket.",
    see: "Dropping is cheap: it is done in the rings. What passes costs a system call and a way through a TAP a frame, \
        which is the bound.",
    runs: &[Run {
        scenario: "filter",
        variants: &["all-pass", "half-dropped", "all-dropped", "from-stack"],
        peers: &["linux-stack"],
        setup: 2,
    }],
    tables: &[
        filter("To the stack, a rule that fits nothing", ALL_PASS, BOTH),
        filter("To the stack, a rule for one of two flows", HALF_DROPPED, FILTERED),
        filter("To the stack, a rule for both", ALL_DROPPED, FILTERED),
        filter("From the stack, a rule that fits nothing", FROM_STACK, BOTH),
    ],
    missing: &[],
};

/// Forwarding.
pub const FORWARDED: PaperFigure = PaperFigure {
    number: "1.2",
    title: "Forwarding between two interfaces",
    about: "60-byte frames from one interface to another: the kernel's bridge, netmap's, the same over libpcap, \
        and switches.",
    here: "The interfaces are ends of veth pairs, so that the kernel's own path to and from them is in every \
        figure, and a program that has them by AF_XDP copies frames.",
    see: "A program on netmap's rings forwards several times as much as the kernel's bridge; the very same libpcap \
        program gains without a change when its libpcap is netvale's.",
    runs: &[Run {
        scenario: "nic",
        variants: &["bridge"],
        peers: &["linux-bridge", "pcap", "pcap-netvale", "ovs-netdev", "dpdk-af-xdp", "af-xdp"],
        setup: 3,
    }],
    tables: &[Table {
        title: "",
        columns: &[mpps("Mpps", "bridge")],
        rows: &[
            TableRow::of(&FORWARDING[0], "linux-bridge"),
            TableRow::of(&FORWARDING[1], "netvale"),
            TableRow::of(&FORWARDING[2], "pcap-netvale"),
            TableRow::ours("that program on the system's libpcap", "pcap"),
            TableRow::of(&FORWARDING[3], "ovs-netdev"),
            TableRow::ours("DPDK's testpmd on AF_XDP", "dpdk-af-xdp"),
            TableRow::ours("a bare loop on AF_XDP", "af-xdp"),
        ],
        base: Some("linux-bridge"),
        facts: &[],
    }],
    missing: &["Click: Debian has it no more; the paper's gain is of its netmap element."],
};
