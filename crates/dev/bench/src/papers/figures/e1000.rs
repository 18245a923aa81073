//! The second document's experiments: an e1000 in guests that are really booted, and played.

use super::{PaperFigure, Run};
use crate::papers::published::*;
use crate::papers::table::{Column, Reading, Table, TableRow};

/// The document's columns, of the variants for small datagrams, large ones, TCP, TCPw, and round trips.
macro_rules! columns {
    ($small:literal, $large:literal, $tcp:literal, $wide:literal $(, $trips:literal)?) => {
        &[
            Column::of("UDP8, kpps", $small, Reading::Kpps),
            Column::of("UDP-1460, kpps", $large, Reading::Kpps),
            Column::of("the same, Mbit/s", $large, Reading::PayloadMbits(1460)),
            Column::of("TCP, Mbit/s", $tcp, Reading::Mbits),
            Column::of("TCPw, Mbit/s", $wide, Reading::Mbits),
            $(Column::of("RR, thousand a second", $trips, Reading::Thousands),)?
        ]
    };
}

/// A table with pkt-gen's columns and these rows, with what is counted beside.
macro_rules! pkt_gen {
    ($facts:expr; $title:literal, $small:literal, $large:literal, $($row:expr),+) => {
        Table {
            title: $title,
            columns: &[
                Column::of("60 bytes, kpps", $small, Reading::Kpps),
                Column::of("1,502 bytes, kpps", $large, Reading::Kpps),
                Column::of("the same, Mbit/s", $large, Reading::Mbits),
            ],
            rows: &[$($row),+],
            base: None,
            facts: $facts,
        }
    };
}

/// What is counted beside.
const FACTS: &[(&str, &str)] = &[("exits_each", "exits a packet"), ("interrupts_each", "interrupts a packet")];
/// The same where the driver polls.
const POLLED: &[(&str, &str)] = &[("exits_each", "register accesses a packet")];
const BASE: Option<&str> = Some("netvale-base");

const SHORT_ITR: TableRow = TableRow::ours("25 µs between interrupts", "netvale-itr-25us");
const QEMU: TableRow = TableRow::ours("QEMU's own e1000, a TAP", "qemu-e1000");
const VHOST: TableRow = TableRow::ours("virtio-net, a vhost-user port", "netvale-vhost");
const NETMAP_E1000: TableRow = TableRow::ours("QEMU's e1000 on its netmap back end", "qemu-e1000-netmap");
const NETMAP_VIRTIO: TableRow = TableRow::ours("QEMU's virtio-net on netmap", "qemu-virtio-netmap");
const BEST: TableRow = TableRow::ours("CSB with moderation", "netvale");

/// What two processors are here.
const TWO_CPUS: &str = "Guests are emulated in software and run Linux. Each has two processors, which are two threads \
    of QEMU's on the host's two; the switch's worker, QEMU's own thread and the host's stack take their time of the \
    same two, so that a second processor gives a guest less than it gave the paper's. itr 100 is 102 µs here.";

/// From a guest to the host, one processor.
pub const OUT: PaperFigure = PaperFigure {
    number: "2.1",
    title: "An e1000 from a guest to the host",
    about: "Datagrams of 8 and 1,460 bytes, TCP with writes of 1,460 bytes and of netperf's default, and round trips, \
        by TAP, one processor: without moderation (BASE), with it (itr, in 250 ns), with Send Combining (SC), and with \
        the status block in memory (CSB).",
    here: "Guests are emulated in software and run Linux: their own network stack and the emulation of their processor \
        are the bound, so that only ratios to BASE compare, and what is counted a packet. itr 100 is 102 µs here, not \
        25, as an emulated processor takes that long for a few packets; one row has 25 µs. TCP has 64 KiB under way \
        at most, TCPw, whose writes are of 16 KiB, 1 MiB. TSO, which the paper has off, is as each driver has it.",
    see: "What each variant saves is register accesses and interrupts, also where the guest's stack hides it in the \
        rate. Send Combining pays an interrupt, of three accesses, for the packets that came meanwhile: it saves \
        accesses only where a guest sends more than four in that time, as the paper's did, and the played ones of 2.4.",
    runs: &[Run {
        scenario: "e1000",
        variants: &["udp-small-tap", "udp-large-tap", "tcp", "tcp-wide", "tcp-rr"],
        peers: &[
            "netvale-base",
            "netvale-itr",
            "netvale-itr-sc",
            "netvale-csb",
            "netvale-itr-25us",
            "qemu-e1000",
            "netvale-vhost",
            "qemu-e1000-netmap",
            "qemu-virtio-netmap",
        ],
        setup: 3,
    }],
    tables: &[Table {
        title: "",
        columns: columns!("udp-small-tap", "udp-large-tap", "tcp", "tcp-wide", "tcp-rr"),
        rows: &[
            TableRow::of(&TAP_ONE_CPU[0], "netvale-base"),
            TableRow::of(&TAP_ONE_CPU[1], "netvale-itr"),
            SHORT_ITR,
            TableRow::of(&TAP_ONE_CPU[2], "netvale-itr-sc"),
            TableRow::of(&TAP_ONE_CPU[3], "netvale-csb"),
            TableRow::of(&TAP_ONE_CPU[4], "netvale"),
            QEMU,
            VHOST,
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[
        "VirtualBox and VMware, which the paper has beside QEMU, are not in the registries used here.",
        "Exits of QEMU's own virtio-net: its doorbells are taken before QEMU counts them.",
    ],
};

/// From the host to a guest, one processor.
pub const IN: PaperFigure = PaperFigure {
    number: "2.2",
    title: "An e1000 from the host to a guest",
    about: "Datagrams of 8 and 1,460 bytes as fast as the host sends them, counted in the guest; TCP that the host \
        sends.",
    here: "Guests are emulated in software and run Linux. Datagrams come from a port of the switch, as fast as that \
        takes them (QEMU's e1000 on a TAP: from a socket), streams from the host's stack by the TAP. itr 100 is \
        102 µs here.",
    see: "Moderation and the status block take interrupts from the guest's processor, which then has more left for \
        datagrams; accesses are those of the receiving driver.",
    runs: &[Run {
        scenario: "e1000",
        variants: &["udp-small-in", "udp-large-in", "tcp-in", "tcp-wide-in"],
        peers: &[
            "netvale-base",
            "netvale-itr",
            "netvale-itr-sc",
            "netvale-itr-25us",
            "qemu-e1000",
            "netvale-vhost",
            "qemu-e1000-netmap",
            "qemu-virtio-netmap",
        ],
        setup: 1,
    }],
    tables: &[Table {
        title: "",
        columns: columns!("udp-small-in", "udp-large-in", "tcp-in", "tcp-wide-in"),
        rows: &[
            TableRow::of(&TAP_ONE_CPU_IN[0], "netvale-base"),
            TableRow::of(&TAP_ONE_CPU_IN[1], "netvale-itr"),
            SHORT_ITR,
            TableRow::of(&TAP_ONE_CPU_IN[2], "netvale-itr-sc"),
            TableRow::of(&TAP_ONE_CPU_IN[3], "netvale"),
            QEMU,
            VHOST,
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[],
};

/// Two guests on a switch of netvale's.
pub const BETWEEN: PaperFigure = PaperFigure {
    number: "2.3",
    title: "Two guests with an e1000 each, on a VALE switch, two processors each",
    about: "The same columns from one guest to the other.",
    here: TWO_CPUS,
    see: "The status block saves most, as in the paper, as each packet that is sent costs an exit without it; Send \
        Combining as far as the guest is fast enough (2.1). Exits are the sender's; interrupts are the receiver's.",
    runs: &[Run {
        scenario: "e1000",
        variants: &[
            "udp-small-between-2cpus",
            "udp-large-between-2cpus",
            "tcp-between-2cpus",
            "tcp-wide-between-2cpus",
            "tcp-rr-between-2cpus",
        ],
        peers: &[
            "netvale-base",
            "netvale-itr",
            "netvale-itr-sc",
            "netvale-csb",
            "netvale-vhost",
            "qemu-e1000-netmap",
            "qemu-virtio-netmap",
        ],
        setup: 4,
    }],
    tables: &[Table {
        title: "",
        columns: columns!(
            "udp-small-between-2cpus",
            "udp-large-between-2cpus",
            "tcp-between-2cpus",
            "tcp-wide-between-2cpus",
            "tcp-rr-between-2cpus"
        ),
        rows: &[
            TableRow::of(&GUESTS_VALE[0], "netvale-base"),
            TableRow::of(&GUESTS_VALE[1], "netvale-itr"),
            TableRow::of(&GUESTS_VALE[2], "netvale-itr-sc"),
            TableRow::of(&GUESTS_VALE[3], "netvale-csb"),
            BEST,
            TableRow::ours("virtio-net, vhost-user ports", "netvale-vhost"),
            NETMAP_E1000,
            NETMAP_VIRTIO,
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[],
};

/// Guests that are played.
pub const PLAYED: PaperFigure = PaperFigure {
    number: "2.4",
    title: "The same driver without a guest around it",
    about: "pkt-gen in guests, 60 bytes and 1,500, between two guests on a VALE switch, and between a guest and the \
        host.",
    here: "A process plays the guests, and is the host's program, with the driver's own code, so that the device and \
        the switch are the bound, not the emulation of a processor. Both ends share a processor; the switch has the \
        other.",
    see: "The status block takes nearly every register access away; Send Combining most of them. Where both ends take \
        turns on one processor, hardly more is sent than is received.",
    runs: &[
        Run {
            scenario: "e1000",
            variants: &["played", "played-large"],
            peers: &["netvale-base", "netvale-sc"],
            setup: 2,
        },
        Run {
            scenario: "e1000",
            variants: &[
                "played-sent",
                "played-large-sent",
                "played-out",
                "played-large-out",
                "played-in",
                "played-large-in",
            ],
            peers: &[],
            setup: 2,
        },
    ],
    tables: &[
        pkt_gen!(POLLED; "Sent", "played-sent", "played-large-sent", TableRow::of(&GUESTS_VALE[4], "netvale")),
        pkt_gen!(
            POLLED;
            "Received",
            "played",
            "played-large",
            TableRow::of(&GUESTS_VALE[5], "netvale"),
            TableRow::ours("Send Combining", "netvale-sc"),
            TableRow::ours("BASE", "netvale-base")
        ),
        pkt_gen!(POLLED; "From a guest", "played-out", "played-large-out", TableRow::of(&GUESTS_VALE[6], "netvale")),
        pkt_gen!(POLLED; "To a guest", "played-in", "played-large-in", TableRow::of(&GUESTS_VALE[7], "netvale")),
    ],
    missing: &[],
};

/// From a guest to the host, two processors.
pub const OUT_TWO: PaperFigure = PaperFigure {
    number: "2.5",
    title: "An e1000 from a guest with two processors to the host",
    about: "As 2.1, where a second processor takes interrupts while the first one sends.",
    here: TWO_CPUS,
    see: "BASE gains most by the second processor, as it no longer stops sending for each interrupt; the status block \
        has by far the fewest exits a packet here, too.",
    runs: &[Run {
        scenario: "e1000",
        variants: &["udp-small-tap-2cpus", "udp-large-tap-2cpus", "tcp-2cpus", "tcp-wide-2cpus", "tcp-rr-2cpus"],
        peers: &["netvale-base", "netvale-itr", "netvale-itr-sc", "netvale-csb", "qemu-e1000"],
        setup: 3,
    }],
    tables: &[Table {
        title: "",
        columns: columns!("udp-small-tap-2cpus", "udp-large-tap-2cpus", "tcp-2cpus", "tcp-wide-2cpus", "tcp-rr-2cpus"),
        rows: &[
            TableRow::of(&TAP_TWO_CPUS[0], "netvale-base"),
            TableRow::of(&TAP_TWO_CPUS[1], "netvale-itr"),
            TableRow::of(&TAP_TWO_CPUS[2], "netvale-itr-sc"),
            TableRow::of(&TAP_TWO_CPUS[3], "netvale-csb"),
            TableRow::of(&TAP_TWO_CPUS[4], "netvale"),
            QEMU,
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[],
};

/// From the host to a guest, two processors.
pub const IN_TWO: PaperFigure = PaperFigure {
    number: "2.6",
    title: "An e1000 from the host to a guest with two processors",
    about: "As 2.2, where one processor takes what comes from the card while the other one runs the program.",
    here: TWO_CPUS,
    see: "More datagrams reach the program than with one processor, as the card's interrupts no longer take the \
        program's time.",
    runs: &[Run {
        scenario: "e1000",
        variants: &["udp-small-in-2cpus", "udp-large-in-2cpus", "tcp-in-2cpus", "tcp-wide-in-2cpus"],
        peers: &["netvale-base", "netvale-itr", "netvale-itr-sc", "qemu-e1000"],
        setup: 1,
    }],
    tables: &[Table {
        title: "",
        columns: columns!("udp-small-in-2cpus", "udp-large-in-2cpus", "tcp-in-2cpus", "tcp-wide-in-2cpus"),
        rows: &[
            TableRow::of(&TAP_TWO_CPUS_IN[0], "netvale-base"),
            TableRow::of(&TAP_TWO_CPUS_IN[1], "netvale-itr"),
            TableRow::of(&TAP_TWO_CPUS_IN[2], "netvale-itr-sc"),
            TableRow::of(&TAP_TWO_CPUS_IN[3], "netvale"),
            QEMU,
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[],
};

/// In netmap mode, in guests that are booted.
pub const PKT_GEN: PaperFigure = PaperFigure {
    number: "2.7",
    title: "pkt-gen in a booted guest with two processors",
    about: "A program that sends or takes frames in netmap mode in the guest: to and from the host by a TAP, to and \
        from a port of a VALE switch, and to another guest.",
    here: "The guest's processors are emulated, two on the host's two. Linux has no netmap: the program reaches the \
        card by AF_XDP, which copies frames to and from the driver's. Where the host sends, it does so by a port of \
        the switch, in both tables to a guest. What two guests send to each other is counted by who receives it.",
    see: "Without the guest's stack more frames pass than in 2.3, 2.5 and 2.6; 2.4 has what the card and the switch \
        do without an emulated processor.",
    runs: &[Run {
        scenario: "e1000",
        variants: &[
            "netmap-small-tap-2cpus",
            "netmap-large-tap-2cpus",
            "netmap-small-in-2cpus",
            "netmap-large-in-2cpus",
            "netmap-small-2cpus",
            "netmap-large-2cpus",
            "netmap-small-between-2cpus",
            "netmap-large-between-2cpus",
        ],
        peers: &[],
        setup: 2,
    }],
    tables: &[
        pkt_gen!(
            FACTS;
            "To a TAP",
            "netmap-small-tap-2cpus",
            "netmap-large-tap-2cpus",
            TableRow::of(&TAP_TWO_CPUS[5], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "From the host, where the paper has a TAP",
            "netmap-small-in-2cpus",
            "netmap-large-in-2cpus",
            TableRow::of(&TAP_TWO_CPUS_IN[4], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "To a port of the switch",
            "netmap-small-2cpus",
            "netmap-large-2cpus",
            TableRow::of(&GUESTS_VALE[6], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "From a port of the switch",
            "netmap-small-in-2cpus",
            "netmap-large-in-2cpus",
            TableRow::of(&GUESTS_VALE[7], "netvale")
        ),
        pkt_gen!(
            FACTS;
            "To another guest",
            "netmap-small-between-2cpus",
            "netmap-large-between-2cpus",
            TableRow::of(&GUESTS_VALE[5], "netvale")
        ),
    ],
    missing: &[],
};

/// Two guests by TAPs.
pub const BRIDGED: PaperFigure = PaperFigure {
    number: "2.8",
    title: "Two guests with an e1000 each, by TAPs on the kernel's bridge, two processors each",
    about: "The same columns from one guest to the other, each with a TAP of its own.",
    here: "Guests are emulated in software and run Linux, two processors each on the host's two. Each guest's e1000 is \
        on a switch of netvale's with a TAP, which is on the kernel's bridge; one worker serves both switches. itr 100 \
        is 102 µs here.",
    see: "A packet passes the kernel's bridge and two TAPs, which costs the host more than the switch alone (2.3). \
        Exits are the sender's; interrupts are the receiver's.",
    runs: &[Run {
        scenario: "e1000",
        variants: &[
            "udp-small-bridged-2cpus",
            "udp-large-bridged-2cpus",
            "tcp-bridged-2cpus",
            "tcp-wide-bridged-2cpus",
            "tcp-rr-bridged-2cpus",
        ],
        peers: &["netvale-base", "netvale-itr", "netvale-itr-sc", "netvale-csb", "qemu-e1000"],
        setup: 4,
    }],
    tables: &[Table {
        title: "",
        columns: columns!(
            "udp-small-bridged-2cpus",
            "udp-large-bridged-2cpus",
            "tcp-bridged-2cpus",
            "tcp-wide-bridged-2cpus",
            "tcp-rr-bridged-2cpus"
        ),
        rows: &[
            TableRow::of(&GUESTS_TAP[0], "netvale-base"),
            TableRow::of(&GUESTS_TAP[1], "netvale-itr"),
            TableRow::of(&GUESTS_TAP[2], "netvale-itr-sc"),
            TableRow::of(&GUESTS_TAP[3], "netvale-csb"),
            BEST,
            TableRow::ours("QEMU's own e1000, TAPs", "qemu-e1000"),
        ],
        base: BASE,
        facts: FACTS,
    }],
    missing: &[],
};
