//! The experiments: a row each, by the numbers of their documents.

mod programs;

use super::published::*;
use super::table::{Column, Reading, Table, TableRow};

/// A document whose design netvale builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// What its figures' numbers begin with.
    pub number: &'static str,
    /// Its title, and where it appeared.
    pub title: &'static str,
    /// The machine of its figures.
    pub machine: &'static str,
}

/// The documents.
pub const DOCUMENTS: &[Document] = &[
    Document {
        number: "1",
        title: "Revisiting Network I/O APIs: The Netmap Framework (Communications of the ACM, 2012)",
        machine: "one 10 Gbit/s interface: 14.88 Mpps of 64-byte frames, 812 kpps of 1,518",
    },
    Document {
        number: "2",
        title: "Speeding Up Packet I/O in Virtual Machines (ANCS 2013)",
        machine: "QEMU with KVM, its e1000 extended; FreeBSD guests; TSO off",
    },
    Document {
        number: "3",
        title: "ptnet: netmap passthrough",
        machine: "Linux 4.4 on an i7-3770K at 3.5 GHz; guests with one processor; netperf, 10 s, 10 times",
    },
    Document {
        number: "4",
        title: "DPDK's vhost and virtio paths (2017)",
        machine: "Xeon E5-2680 v2 at 2.8 GHz, DPDK 17.05, 64-byte frames",
    },
];

/// Cases of a scenario, with peers beside them.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The scenario.
    pub scenario: &'static str,
    /// Its variants.
    pub variants: &'static [&'static str],
    /// Who is measured beside netvale.
    pub peers: &'static [&'static str],
    /// Seconds that setting up one contender takes.
    pub setup: u32,
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The document's number, and its own.
    pub number: &'static str,
    /// What it is called here.
    pub title: &'static str,
    /// What was measured.
    pub about: &'static str,
    /// What is different here.
    pub here: &'static str,
    /// What to see.
    pub see: &'static str,
    /// How it is measured here.
    pub runs: &'static [Run],
    /// The figures, printed and ours.
    pub tables: &'static [Table],
    /// What cannot be had here, and why.
    pub missing: &'static [&'static str],
}

impl Figure {
    /// Its document.
    pub fn document(&self) -> &'static Document {
        let of = |document: &&Document| self.number.split('.').next() == Some(document.number);
        DOCUMENTS.iter().find(of).unwrap_or(&DOCUMENTS[0])
    }
}

/// The paper's columns, guest and host.
const COLUMNS: &[Column] = &[
    Column { head: "UDP8, kpps", variant: "udp-small-tap", bytes: 0, reading: Reading::Kpps },
    Column { head: "UDP-1460, kpps", variant: "udp-large-tap", bytes: 0, reading: Reading::Kpps },
    Column { head: "the same, Mbit/s", variant: "udp-large-tap", bytes: 0, reading: Reading::PayloadMbits(1460) },
    Column { head: "TCP, Mbit/s", variant: "tcp", bytes: 0, reading: Reading::Mbits },
    Column { head: "TCPw, Mbit/s", variant: "tcp-wide", bytes: 0, reading: Reading::Mbits },
    Column { head: "RR, thousand a second", variant: "tcp-rr", bytes: 0, reading: Reading::Thousands },
];

/// The columns of datagrams to the guest.
const COLUMNS_IN: &[Column] = &[
    Column { head: "UDP8, kpps", variant: "udp-small-in", bytes: 0, reading: Reading::Kpps },
    Column { head: "UDP-1460, kpps", variant: "udp-large-in", bytes: 0, reading: Reading::Kpps },
    Column { head: "the same, Mbit/s", variant: "udp-large-in", bytes: 0, reading: Reading::PayloadMbits(1460) },
];

/// Between guests.
const COLUMNS_BETWEEN: &[Column] = &[
    Column { head: "UDP8, kpps", variant: "udp-small-between", bytes: 0, reading: Reading::Kpps },
    Column { head: "UDP-1460, kpps", variant: "udp-large-between", bytes: 0, reading: Reading::Kpps },
    Column { head: "the same, Mbit/s", variant: "udp-large-between", bytes: 0, reading: Reading::PayloadMbits(1460) },
];

/// netvale's rows in booted guests, in the paper's order, with what is printed of each.
const fn e1000(printed: [&'static PrintedRow; 5]) -> [TableRow; 7] {
    let [base, itr, sc, csb, csb_itr] = printed;
    [
        TableRow::of(base, "netvale-base"),
        TableRow::of(itr, "netvale-itr"),
        TableRow::of(sc, "netvale-itr-sc"),
        TableRow::of(csb, "netvale-csb"),
        TableRow::of(csb_itr, "netvale"),
        TableRow::ours("QEMU's own e1000, a TAP", "qemu-e1000"),
        TableRow::ours("virtio-net, a vhost-user port", "netvale-vhost"),
    ]
}

const EMULATED: &str = "Guests are emulated in software, without hardware's virtualisation, and run Linux: their own \
    network stack and the emulation of their processor are the bound, so that only ratios to BASE compare, and what \
    is counted a packet.";

const E1000_PEERS: &[&str] =
    &["netvale-base", "netvale-itr", "netvale-itr-sc", "netvale-csb", "qemu-e1000", "netvale-vhost"];

/// The paths of DPDK's driver, by what the guest does.
const IO: &[Column] = &[
    mpps("mergeable", "io mergeable"),
    mpps("non-mergeable", "io non-mergeable"),
    mpps("in-order", "io in-order"),
    mpps("vector", "io vector"),
    mpps("packed", "io packed"),
    mpps("packed, vector", "io packed-vector"),
];
const MAC: &[Column] = &[
    mpps("mergeable", "mac mergeable"),
    mpps("non-mergeable", "mac non-mergeable"),
    mpps("in-order", "mac in-order"),
    mpps("vector", "mac vector"),
    mpps("packed", "mac packed"),
    mpps("packed, vector", "mac packed-vector"),
];

const fn mpps(head: &'static str, variant: &'static str) -> Column {
    Column { head, variant, bytes: 0, reading: Reading::Mpps }
}

/// The rows of both.
const PVP: &[TableRow] = &[
    TableRow::ours("DPDK's vhost, DPDK's driver", "dpdk-pvp"),
    TableRow::ours("netvale's vhost, DPDK's driver", "netvale"),
    TableRow::ours("netvale's vhost, netvale's driver", "netvale-both"),
];
const PVP_PEERS: &[&str] = &["dpdk-pvp", "netvale-both"];

/// A column for a size.
const fn by(head: &'static str, variant: &'static str, bytes: u32, reading: Reading) -> Column {
    Column { head, variant, bytes, reading }
}

const TCP_RR: &[Column] = &[
    by("1 B", "tcp-rr-between", 1, Reading::Thousands),
    by("64 B", "tcp-rr-between", 64, Reading::Thousands),
    by("1 KiB", "tcp-rr-between", 1024, Reading::Thousands),
    by("8 KiB", "tcp-rr-between", 8192, Reading::Thousands),
    by("65,000 B", "tcp-rr-between", 65_000, Reading::Thousands),
];
const UDP_RR: &[Column] = &[
    by("1 B", "udp-rr-between", 1, Reading::Thousands),
    by("64 B", "udp-rr-between", 64, Reading::Thousands),
    by("1 KiB", "udp-rr-between", 1024, Reading::Thousands),
    by("8 KiB", "udp-rr-between", 8192, Reading::Thousands),
    by("65,000 B", "udp-rr-between", 65_000, Reading::Thousands),
];
const UDP_MESSAGES: &[Column] = &[
    by("64 B", "udp-messages-between", 64, Reading::Mbits),
    by("512 B", "udp-messages-between", 512, Reading::Mbits),
    by("1,472 B", "udp-messages-between", 1472, Reading::Mbits),
    by("8 KiB", "udp-messages-between", 8192, Reading::Mbits),
    by("24 KiB", "udp-messages-between", 24_576, Reading::Mbits),
    by("65,000 B", "udp-messages-between", 65_000, Reading::Mbits),
];

/// Two guests by each interface.
const PAIRS: &[TableRow] = &[
    TableRow::ours("ptnet ports of a VALE switch", "netvale"),
    TableRow::ours("virtio-net on vhost ports of the switch", "netvale-vhost"),
    TableRow::ours("QEMU's virtio-net on TAPs, the kernel's bridge", "qemu-virtio"),
];
const PAIR_PEERS: &[&str] = &["netvale-vhost", "qemu-virtio"];

/// All of them, in order.
pub const ALL: &[Figure] = &[
    programs::GENERATORS_BY_CLOCK,
    Figure {
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
                TableRow::ours("the same program, the system's libpcap", "pcap"),
                TableRow::of(&FORWARDING[3], "ovs-netdev"),
                TableRow::ours("DPDK's testpmd on AF_XDP", "dpdk-af-xdp"),
                TableRow::ours("a bare loop on AF_XDP", "af-xdp"),
            ],
            base: Some("linux-bridge"),
            facts: &[],
        }],
        missing: &["Click: Debian has it no more; the paper's gain is of its netmap element."],
    },
    programs::PARTS_OF_SENDING,
    programs::PACKET_FILTER,
    Figure {
        number: "2.1",
        title: "An e1000 from a guest to the host",
        about: "Datagrams of 8 and 1,460 bytes, TCP with writes of 1,460 bytes and of netperf's default, and round \
            trips, by TAP, one processor: without moderation (BASE), with it (itr, in 250 ns), with Send Combining \
            (SC), and with the status block in memory (CSB).",
        here: EMULATED,
        see: "What each variant saves is register accesses and interrupts: the figures a packet fall in the paper's \
            order, also where the guest's own stack hides it in the rate.",
        runs: &[Run {
            scenario: "e1000",
            variants: &["udp-small-tap", "udp-large-tap", "tcp", "tcp-wide", "tcp-rr"],
            peers: E1000_PEERS,
            setup: 20,
        }],
        tables: &[Table {
            title: "",
            columns: COLUMNS,
            rows: &e1000([&TAP_ONE_CPU[0], &TAP_ONE_CPU[1], &TAP_ONE_CPU[2], &TAP_ONE_CPU[3], &TAP_ONE_CPU[4]]),
            base: Some("netvale-base"),
            facts: &[("exits_each", "exits a packet"), ("interrupts_each", "interrupts a packet")],
        }],
        missing: &["VirtualBox and VMware, which the paper has beside QEMU, are not in the registries used here."],
    },
    Figure {
        number: "2.2",
        title: "An e1000 from the host to a guest",
        about: "Datagrams of 8 and 1,460 bytes as fast as the host sends them, counted in the guest.",
        here: EMULATED,
        see: "Moderation and the status block take interrupts from the guest's processor, which then has more left \
            for datagrams.",
        runs: &[Run { scenario: "e1000", variants: &["udp-small-in", "udp-large-in"], peers: E1000_PEERS, setup: 20 }],
        tables: &[Table {
            title: "",
            columns: COLUMNS_IN,
            rows: &[
                TableRow::of(&TAP_ONE_CPU_IN[0], "netvale-base"),
                TableRow::of(&TAP_ONE_CPU_IN[1], "netvale-itr"),
                TableRow::of(&TAP_ONE_CPU_IN[2], "netvale-itr-sc"),
                TableRow::of(&TAP_ONE_CPU_IN[3], "netvale"),
                TableRow::ours("QEMU's own e1000, a TAP", "qemu-e1000"),
                TableRow::ours("virtio-net, a vhost-user port", "netvale-vhost"),
            ],
            base: Some("netvale-base"),
            facts: &[("interrupts_each", "interrupts a packet")],
        }],
        missing: &[],
    },
    Figure {
        number: "2.3",
        title: "Two guests with an e1000 each, on a VALE switch",
        about: "Datagrams from one guest to the other.",
        here: EMULATED,
        see: "Send Combining and the status block save most, as in the paper, as each packet that is sent costs an \
            exit without them.",
        runs: &[Run {
            scenario: "e1000",
            variants: &["udp-small-between", "udp-large-between"],
            peers: &["netvale-base", "netvale-itr", "netvale-itr-sc", "netvale-csb", "netvale-vhost"],
            setup: 40,
        }],
        tables: &[Table {
            title: "",
            columns: COLUMNS_BETWEEN,
            rows: &[
                TableRow::of(&GUESTS_VALE[0], "netvale-base"),
                TableRow::of(&GUESTS_VALE[1], "netvale-itr"),
                TableRow::of(&GUESTS_VALE[2], "netvale-itr-sc"),
                TableRow::of(&GUESTS_VALE[3], "netvale-csb"),
                TableRow::ours("virtio-net, vhost-user ports", "netvale-vhost"),
            ],
            base: Some("netvale-base"),
            facts: &[("exits_each", "exits a packet"), ("interrupts_each", "interrupts a packet")],
        }],
        missing: &[],
    },
    Figure {
        number: "2.4",
        title: "The same driver without a guest around it",
        about: "pkt-gen in guests, 60 bytes and 1,500, between two guests on a VALE switch.",
        here: "A process plays both guests with the driver's own code, so that the device and the switch are the \
            bound, not the emulation of a processor.",
        see: "The status block takes nearly every register access away; Send Combining most of them.",
        runs: &[Run {
            scenario: "e1000",
            variants: &["played", "played-large"],
            peers: &["netvale-base", "netvale-sc"],
            setup: 2,
        }],
        tables: &[Table {
            title: "",
            columns: &[
                Column { head: "60 bytes, kpps", variant: "played", bytes: 0, reading: Reading::Kpps },
                Column { head: "1,500 bytes, kpps", variant: "played-large", bytes: 0, reading: Reading::Kpps },
                Column { head: "the same, Mbit/s", variant: "played-large", bytes: 0, reading: Reading::Mbits },
            ],
            rows: &[
                TableRow::of(&GUESTS_VALE[4], "netvale"),
                TableRow::ours("Send Combining", "netvale-sc"),
                TableRow::ours("BASE", "netvale-base"),
            ],
            base: None,
            facts: &[],
        }],
        missing: &[],
    },
    Figure {
        number: "3.1",
        title: "Round trips between two guests, by size",
        about: "TCP_RR and UDP_RR against the size of a message. The text says: ptnet is better at small sizes, and \
            equal at very large ones.",
        here: EMULATED,
        see: "A round trip takes four wake-ups whatever the interface is; what an interface adds to them is what \
            differs, and copies matter only for long messages.",
        runs: &[Run {
            scenario: "pairs",
            variants: &["tcp-rr-between", "udp-rr-between"],
            peers: PAIR_PEERS,
            setup: 40,
        }],
        tables: &[
            Table {
                title: "TCP, thousand a second",
                columns: TCP_RR,
                rows: PAIRS,
                base: Some("netvale-vhost"),
                facts: &[],
            },
            Table {
                title: "UDP, thousand a second",
                columns: UDP_RR,
                rows: PAIRS,
                base: Some("netvale-vhost"),
                facts: &[],
            },
        ],
        missing: &["vhost-net, the paper's peer, is a part of the kernel's that needs hardware's virtualisation here."],
    },
    Figure {
        number: "3.2",
        title: "A TCP stream between two guests",
        about: "TCP_STREAM. Printed: ptnet 20 Gbit/s, virtio-net with vhost-net 26.",
        here: EMULATED,
        see: "The paper lost here to vhost-net, which copies once less.",
        runs: &[Run { scenario: "pairs", variants: &["tcp-between"], peers: PAIR_PEERS, setup: 40 }],
        tables: &[Table {
            title: "",
            columns: &[Column { head: "Mbit/s", variant: "tcp-between", bytes: 0, reading: Reading::Mbits }],
            rows: &[
                TableRow::of(&PTNET_STREAM[0], "netvale"),
                TableRow::of(&PTNET_STREAM[1], "qemu-virtio"),
                TableRow::ours("virtio-net on vhost ports of the switch", "netvale-vhost"),
            ],
            base: Some("qemu-virtio"),
            facts: &[],
        }],
        missing: &[],
    },
    Figure {
        number: "3.3",
        title: "Datagrams between two guests, by size",
        about: "UDP_STREAM, as its sender counts it. The text says: it grows up to 20 or 30 KiB, and ptnet is ahead at \
            all sizes.",
        here: EMULATED,
        see: "A message costs a system call and a way through the stack, so that the rate grows with its size.",
        runs: &[Run { scenario: "pairs", variants: &["udp-messages-between"], peers: PAIR_PEERS, setup: 40 }],
        tables: &[Table {
            title: "Mbit/s",
            columns: UDP_MESSAGES,
            rows: PAIRS,
            base: Some("netvale-vhost"),
            facts: &[],
        }],
        missing: &[],
    },
    Figure {
        number: "3.5",
        title: "pkt-gen between two guests",
        about: "60-byte frames from one guest to another on ptnet ports of a switch, with and without virtio-net \
            headers.",
        here: "A process plays both guests on the ports' memory; the receiver shares the sender's processor, the \
            switch has the other.",
        see: "As in the paper, the header costs a small part of the rate.",
        runs: &[Run { scenario: "ptnet", variants: &["guests-header", "guests"], peers: &[], setup: 2 }],
        tables: &[Table {
            title: "",
            columns: &[mpps("with headers, Mpps", "guests-header"), mpps("without, Mpps", "guests")],
            rows: &[TableRow::of(&PTNET_PKT_GEN, "netvale")],
            base: None,
            facts: &[],
        }],
        missing: &[],
    },
    Figure {
        number: "4.1",
        title: "Forwarding in the guest, frames untouched (io), by the driver's path",
        about: "64-byte frames from a generator through a vhost port to a guest that forwards them, and back, Mpps. \
            The text says: the vector path is the best, by almost 15 % over the mergeable one.",
        here: "The generator is in the host's process, as DPDK's net_null; the guest is a process with the driver. \
            DPDK has in-order and packed queues since.",
        see: "The order of the paths is the document's for DPDK's own device; for netvale's, in-order queues are the \
            best.",
        runs: &[Run {
            scenario: "pvp",
            variants: &[
                "io mergeable",
                "io non-mergeable",
                "io in-order",
                "io vector",
                "io packed",
                "io packed-vector",
            ],
            peers: PVP_PEERS,
            setup: 6,
        }],
        tables: &[Table { title: "", columns: IO, rows: PVP, base: None, facts: &[] }],
        missing: &[],
    },
    Figure {
        number: "4.2",
        title: "Forwarding in the guest with addresses written (mac), by the driver's path",
        about: "The same with a guest that writes the Ethernet addresses, Mpps. The text says: the three paths are \
            nearly the same.",
        here: "As before.",
        see: "Writing a line that the host has just written costs a transfer between two processors' caches, which is \
            the same on all paths.",
        runs: &[Run {
            scenario: "pvp",
            variants: &[
                "mac mergeable",
                "mac non-mergeable",
                "mac in-order",
                "mac vector",
                "mac packed",
                "mac packed-vector",
            ],
            peers: PVP_PEERS,
            setup: 6,
        }],
        tables: &[Table { title: "", columns: MAC, rows: PVP, base: None, facts: &[] }],
        missing: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;
    use crate::{rivals, scenarios};

    /// Objective: each figure is of a document, has a number of its own, and names scenarios, variants and peers that
    /// there are; each row and column of its table is measured by one of its runs.
    #[test]
    fn figures_name_what_there_is() {
        let peers: Vec<_> = rivals::all().iter().map(|peer| peer.name).collect();
        for figure in ALL {
            let number = figure.number;
            assert_eq!(ALL.iter().filter(|other| other.number == number).count(), 1, "{number}");
            assert!(number.starts_with(figure.document().number), "{number}");
            for run in figure.runs {
                let scenario = scenarios::named(&[run.scenario.to_owned()]).expect("a scenario")[0];
                let known: Vec<_> = scenario.cases(&Measure::default()).into_iter().map(|case| case.variant).collect();
                assert!(run.variants.iter().all(|variant| known.iter().any(|one| one == variant)), "{number}");
                assert!(run.peers.iter().all(|peer| peers.contains(peer)), "{number}");
            }
            let measured = |of: fn(&Run) -> &'static [&'static str], name: &str| {
                figure.runs.iter().any(|run| of(run).contains(&name))
            };
            let columns = figure.tables.iter().flat_map(|table| table.columns);
            for column in columns {
                assert!(measured(|run| run.variants, column.variant), "{number}: {}", column.variant);
            }
            for (table, row) in figure.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row))) {
                assert!(
                    row.contender == "netvale" || measured(|run| run.peers, row.contender),
                    "{number}: {}",
                    row.name
                );
                let columns = table.columns.len();
                assert!(row.printed.is_none_or(|printed| printed.values.len() >= columns), "{number}: {}", row.name);
            }
        }
    }
}
