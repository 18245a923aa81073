//! The experiments: a row each, by the numbers of their documents.

mod e1000;
mod programs;
mod ptnet;

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
    /// Seconds that setting up one contender takes, shared out among the cases that the same set-up measures.
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

/// What guests are here.
const EMULATED: &str = "Guests are emulated in software, without hardware's virtualisation, and run Linux: their own \
    network stack and the emulation of their processor are the bound, so that only ratios to BASE compare, and what \
    is counted a packet.";

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
    Column::of(head, variant, Reading::Mpps)
}

/// The rows of both.
const PVP: &[TableRow] = &[
    TableRow::ours("DPDK's vhost, DPDK's driver", "dpdk-pvp"),
    TableRow::ours("netvale's vhost, DPDK's driver", "netvale"),
    TableRow::ours("netvale's vhost, netvale's driver", "netvale-both"),
];
const PVP_PEERS: &[&str] = &["dpdk-pvp", "netvale-both"];

/// DPDK's releases, and netvale under the system's.
const RELEASES: &[TableRow] = &[
    TableRow::ours("DPDK's vhost and driver, Debian 12", "dpdk-pvp"),
    TableRow::ours("the same, Debian 13 (trixie)", "dpdk-pvp-trixie"),
    TableRow::ours("the same, Debian's development release (sid)", "dpdk-pvp-sid"),
    TableRow::ours("netvale's vhost, DPDK's driver of Debian 12", "netvale"),
];

/// Who stands between an interface and the guest.
const OUTSIDE: &[TableRow] = &[
    TableRow::ours("DPDK: net_af_xdp and net_vhost", "dpdk-pvp"),
    TableRow::ours("DPDK: net_af_packet and net_vhost", "dpdk-pvp-packet"),
    TableRow::ours("netvale's switch: the interface by AF_XDP, a vhost port", "netvale"),
];

/// The device of a booted guest, by how it is offered.
const MRG_RXBUF: &[Column] = &[
    by("mrg_rxbuf=on, kpps", "mac mergeable", 0, Reading::Kpps),
    by("mrg_rxbuf=off, kpps", "mac non-mergeable", 0, Reading::Kpps),
];

/// A column for a size.
const fn by(head: &'static str, variant: &'static str, bytes: u32, reading: Reading) -> Column {
    Column { bytes, ..Column::of(head, variant, reading) }
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
    e1000::OUT,
    e1000::IN,
    e1000::BETWEEN,
    e1000::PLAYED,
    e1000::OUT_TWO,
    e1000::IN_TWO,
    e1000::PKT_GEN,
    e1000::BRIDGED,
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
            columns: &[Column::of("Mbit/s", "tcp-between", Reading::Mbits)],
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
    ptnet::PKTGEN,
    ptnet::PROGRAMS,
    ptnet::PASSED,
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
    Figure {
        number: "4.3",
        title: "The mergeable path by release",
        about: "Forwarding in the guest with addresses written, the mergeable path, by release of DPDK. The text says: \
            nearly 20 % up over the releases 16.07 to 17.05, with a dip in 16.11; no values are printed.",
        here: "The releases are those of Debian 12 and of newer Debians, host and guest each; frames untouched (io) \
            are beside. netvale's own versions have a table, to which each release appends a row.",
        see: "The path is the same work in all releases: what differs between them is what was made cheaper in it.",
        runs: &[Run {
            scenario: "pvp",
            variants: &["mac mergeable", "io mergeable"],
            peers: &["dpdk-pvp", "dpdk-pvp-trixie", "dpdk-pvp-sid"],
            setup: 6,
        }],
        tables: &[Table {
            title: "",
            columns: &[mpps("mac, Mpps", "mac mergeable"), mpps("io, Mpps", "io mergeable")],
            rows: RELEASES,
            base: Some("dpdk-pvp"),
            facts: &[("release", "DPDK")],
        }],
        missing: &["Releases before Debian 12's, the document's among them."],
    },
    Figure {
        number: "4.4",
        title: "The generator outside",
        about: "The same test with the generator where the document has it, a hardware one on a 10 Gbit/s port: beyond \
            the host's network interface.",
        here: "The interface is an end of a veth pair, so that the kernel's copies are in every figure. Two \
            processors: the generator (DPDK's net_null and net_af_xdp on the pair's far end) and the guest (DPDK's \
            driver, addresses written) are ports of one program on the first, a burst each in turn; the host has the \
            second. netvale's host is a switch that learns addresses, DPDK's passes all from one port to the other.",
        see: "A frame crosses the pair twice, at several times the cost of a vhost queue: the kernel is the bound, and \
            the hosts differ by how they use its sockets.",
        runs: &[Run {
            scenario: "pvp-outside",
            variants: &["mac mergeable", "mac in-order"],
            peers: &["dpdk-pvp", "dpdk-pvp-packet"],
            setup: 8,
        }],
        tables: &[Table {
            title: "",
            columns: &[mpps("mergeable, Mpps", "mac mergeable"), mpps("in-order, Mpps", "mac in-order")],
            rows: OUTSIDE,
            base: Some("dpdk-pvp"),
            facts: &[],
        }],
        missing: &["A hardware generator, and a physical port."],
    },
    Figure {
        number: "4.5",
        title: "testpmd inside a guest",
        about: "DPDK's testpmd in a virtual machine, on its virtio-net: `mrg_rxbuf=on` and `off`. No values are \
            printed.",
        here: "The guest is really booted, but its processor is emulated in software, and is the bound: rates compare \
            devices and options only. The device is uio_pci_generic's in the guest. The generator is in the host's \
            process.",
        see: "With `mrg_rxbuf=on` the driver reads how many buffers a frame has taken from its header, and looks for \
            more; with `off` a frame is one buffer.",
        runs: &[Run {
            scenario: "pvp-booted",
            variants: &["mac mergeable", "mac non-mergeable"],
            peers: &["dpdk-pvp"],
            setup: 25,
        }],
        tables: &[Table {
            title: "",
            columns: MRG_RXBUF,
            rows: &[
                TableRow::ours("DPDK's vhost, DPDK's driver in the guest", "dpdk-pvp"),
                TableRow::ours("netvale's vhost, DPDK's driver in the guest", "netvale"),
            ],
            base: Some("dpdk-pvp"),
            facts: &[],
        }],
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
