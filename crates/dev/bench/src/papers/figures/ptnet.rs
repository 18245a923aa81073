//! Experiments of "ptnet" that leave the guests' stacks out: the kernel's generator, netmap programs, passthrough.

use super::*;

/// A column for a burst.
const fn burst(head: &'static str, batch: u32) -> Column {
    Column { batch, ..Column::of(head, "pktgen", Reading::Kpps) }
}

/// The generator of the guest's kernel.
pub const PKTGEN: Figure = Figure {
    number: "3.4",
    title: "The kernel's generator in a guest, by burst",
    about: "In-kernel pktgen, 60-byte frames as the host receives them, by the burst: how many frames the driver gets \
        before the last one. The text says: virtio-net is flat; ptnet grows with the burst, is best near 50, and then \
        falls.",
    here: "Guests are emulated in software, without hardware's virtualisation: the instructions of the generator and \
        of the driver are the bound. One packet is sent over and over, so that making it is not measured.",
    see: "A driver notifies the host once a burst, so that the rate grows with the burst where notifications cost \
        something, and is flat where the host is awake all the time and needs none.",
    runs: &[Run { scenario: "pktgen", variants: &["pktgen"], peers: PAIR_PEERS, setup: 15 }],
    tables: &[Table {
        title: "Thousand frames a second",
        columns: &[
            burst("1", 1),
            burst("2", 2),
            burst("4", 4),
            burst("8", 8),
            burst("16", 16),
            burst("32", 32),
            burst("50", 50),
            burst("64", 64),
            burst("128", 128),
        ],
        rows: &[
            TableRow::ours("a ptnet port of a VALE switch", "netvale"),
            TableRow::ours("virtio-net on a vhost port of the switch", "netvale-vhost"),
            TableRow::ours("QEMU's virtio-net on a TAP", "qemu-virtio"),
        ],
        base: None,
        facts: &[],
    }],
    missing: &["vhost-net, the paper's peer, needs hardware's virtualisation here."],
};

/// Netmap programs in two guests.
pub const PROGRAMS: Figure = Figure {
    number: "3.5",
    title: "pkt-gen between two guests",
    about: "60-byte frames from one guest to another on ptnet ports of a switch, with and without virtio-net headers.",
    here: "First a process plays both guests on the ports' memory; the receiver shares the sender's processor, the \
        switch has the other. Then both guests are really booted, emulated in software: their programs take the rings \
        from the interface by its driver, and the receiver counts.",
    see: "As in the paper, the header costs a small part of the rate.",
    runs: &[
        Run { scenario: "ptnet", variants: &["guests-header", "guests"], peers: &[], setup: 2 },
        Run { scenario: "pairs", variants: &["netmap-header-between", "netmap-between"], peers: &[], setup: 40 },
    ],
    tables: &[
        Table {
            title: "Guests that a process plays",
            columns: &[mpps("with headers, Mpps", "guests-header"), mpps("without, Mpps", "guests")],
            rows: &[TableRow::of(&PTNET_PKT_GEN, "netvale")],
            base: None,
            facts: &[],
        },
        Table {
            title: "Booted guests",
            columns: &[
                Column::of("with headers, kpps", "netmap-header-between", Reading::Kpps),
                Column::of("without, kpps", "netmap-between", Reading::Kpps),
            ],
            rows: &[TableRow::ours("netmap programs in two guests", "netvale")],
            base: None,
            facts: &[],
        },
    ],
    missing: &[],
};

/// What passthrough costs beside the same thing on the host.
pub const PASSED: Figure = Figure {
    number: "3.6",
    title: "Ring sizes, a pipe and an interface, in a guest and on the host",
    about: "Frames from guest to guest by slots of a ring, into a pipe, and to and from an interface that are passed \
        through. The text says: the same as on the host.",
    here: "A process plays the guests; frames have 60 bytes. The interface is an end of a veth pair, opened by \
        AF_XDP, which copies. On the host, the pipe's two processes have a processor each; where it is passed \
        through, its worker has one, and both programs have the other.",
    see: "Passthrough adds a worker: it exchanges slots of a pipe's two ends, and passes an interface's frames from \
        and to the guest's own buffers. The size of rings is to matter in guests as it does on the host.",
    runs: &[
        Run {
            scenario: "ptnet",
            variants: &["slots-256", "slots-512", "slots-1024", "slots-2048", "pipe", "pipe-untouched"],
            peers: &["netvale-local"],
            setup: 2,
        },
        Run { scenario: "pipe", variants: &["touched", "untouched"], peers: &[], setup: 2 },
        Run { scenario: "nic", variants: &["tx", "rx"], peers: &["netvale-guest"], setup: 3 },
    ],
    tables: &[
        Table {
            title: "By slots of a ring, Mpps",
            columns: &[
                mpps("256", "slots-256"),
                mpps("512", "slots-512"),
                mpps("1,024", "slots-1024"),
                mpps("2,048", "slots-2048"),
            ],
            rows: &[
                TableRow::ours("guests on ptnet ports", "netvale"),
                TableRow::ours("programs on the host", "netvale-local"),
            ],
            base: Some("netvale-local"),
            facts: &[],
        },
        Table {
            title: "A pipe, Mpps",
            columns: &[
                mpps("passed through, first line touched", "pipe"),
                mpps("on the host", "touched"),
                mpps("passed through, slots only", "pipe-untouched"),
                mpps("on the host", "untouched"),
            ],
            rows: &[TableRow::ours("from end to end", "netvale")],
            base: None,
            facts: &[],
        },
        Table {
            title: "An interface, Mpps",
            columns: &[mpps("sent", "tx"), mpps("received", "rx")],
            rows: &[TableRow::ours("on the host", "netvale"), TableRow::ours("passed through", "netvale-guest")],
            base: Some("netvale"),
            facts: &[],
        },
    ],
    missing: &[],
};
