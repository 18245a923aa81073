//! The values that the documents print as numbers, row by row. Values that appear only in a plot are omitted.

/// Marks a column for which the document prints no value.
const NOT: Option<f64> = None;

const fn is(value: f64) -> Option<f64> {
    Some(value)
}

/// A row of a document's table: its name in the document, and its values in the order of the columns.
#[derive(Clone, Copy, Debug)]
pub struct PrintedRow {
    /// The row's name.
    pub name: &'static str,
    /// The row's values, one for each column; `None` if the document prints no value.
    pub values: &'static [Option<f64>],
}

const fn row(name: &'static str, values: &'static [Option<f64>]) -> PrintedRow {
    PrintedRow { name, values }
}

/// "Speeding Up Packet I/O in Virtual Machines": from the guest to the host through a TAP, one processor. Columns: UDP
/// with 8 bytes and UDP with 1,460 bytes in thousands of datagrams per second; UDP with 1,460 bytes in Mbit/s; TCP and
/// TCPw in Mbit/s; round trips in thousands per second.
pub const TAP_ONE_CPU: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(30.0), is(27.0), is(314.0), is(228.0), is(603.0), is(17.0)]),
    row("itr 100", &[is(82.0), is(71.0), is(831.0), is(520.0), is(650.0), is(4.5)]),
    row("itr 100 SC", &[is(317.0), is(202.0), is(2366.0), is(1239.0), is(1256.0), is(4.5)]),
    row("itr 0 CSB", &[is(711.0), is(332.0), is(3874.0), is(2272.0), is(1925.0), is(17.2)]),
    row("itr 100 CSB", &[is(717.0), is(326.0), is(3810.0), is(2226.0), is(2067.0), is(4.7)]),
];

/// Like [`TAP_ONE_CPU`], from the host to the guest.
pub const TAP_ONE_CPU_IN: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(260.0), is(236.0), is(2760.0), is(1150.0), is(1150.0), NOT]),
    row("itr 100", &[is(310.0), is(292.0), is(3421.0), is(1060.0), is(1060.0), NOT]),
    row("itr 100 SC", &[NOT, NOT, NOT, is(1943.0), is(1950.0), NOT]),
    row("itr 100 CSB", &[NOT, NOT, NOT, is(2140.0), is(2150.0), NOT]),
];

/// Like [`TAP_ONE_CPU`], with two processors.
pub const TAP_TWO_CPUS: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(80.0), is(72.0), is(835.0), is(750.0), is(730.0), is(22.0)]),
    row("itr 100", &[is(83.0), is(74.0), is(840.0), is(730.0), is(815.0), is(4.5)]),
    row("itr 100 SC", &[is(316.0), is(196.0), is(2291.0), is(1850.0), is(1730.0), is(4.4)]),
    row("itr 0 CSB", &[is(700.0), is(318.0), is(3710.0), is(2498.0), is(2562.0), is(18.5)]),
    row("itr 100 CSB", &[is(710.0), is(315.0), is(3684.0), is(2488.0), is(2505.0), is(4.4)]),
    row("pkt-gen", &[is(720.0), is(660.0), is(7780.0), NOT, NOT, NOT]),
];

/// Like [`TAP_ONE_CPU`], from the host to the guest, with two processors.
pub const TAP_TWO_CPUS_IN: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(480.0), is(403.0), is(4717.0), is(1250.0), is(1230.0), NOT]),
    row("itr 100", &[is(490.0), is(418.0), is(4890.0), is(1250.0), is(1230.0), NOT]),
    row("itr 100 SC", &[NOT, NOT, NOT, is(2300.0), is(2320.0), NOT]),
    row("itr 100 CSB", &[NOT, NOT, NOT, is(4400.0), is(4300.0), NOT]),
    row("pkt-gen", &[is(576.0), is(517.0), is(6040.0), NOT, NOT, NOT]),
];

/// Like [`TAP_ONE_CPU`], between two guests on TAPs, with two processors each.
pub const GUESTS_TAP: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(67.0), is(64.0), is(755.0), is(645.0), is(700.0), is(8.7)]),
    row("itr 100", &[is(67.0), is(61.0), is(715.0), is(600.0), is(680.0), is(6.8)]),
    row("itr 100 SC", &[is(275.0), is(177.0), is(2073.0), is(1230.0), is(1150.0), is(6.4)]),
    row("itr 0 CSB", &[is(440.0), is(281.0), is(3284.0), is(1787.0), is(1800.0), is(7.1)]),
];

/// Like [`TAP_ONE_CPU`], between two guests on a VALE switch; the last rows are pkt-gen's rates.
pub const GUESTS_VALE: &[PrintedRow] = &[
    row("itr 0 BASE", &[is(111.0), is(92.0), is(1077.0), is(830.0), is(967.0), NOT]),
    row("itr 100", &[is(110.0), is(90.0), is(1050.0), is(1002.0), is(1043.0), is(1.9)]),
    row("itr 100 SC", &[is(540.0), is(299.0), is(3050.0), is(907.0), is(899.0), is(1.9)]),
    row("itr 0 CSB", &[is(629.0), is(480.0), is(5620.0), is(2551.0), is(2931.0), is(7.2)]),
    row("pkt-gen, TX", &[is(6300.0), is(2700.0), is(31530.0), NOT, NOT, NOT]),
    row("pkt-gen, RX", &[is(4700.0), is(2200.0), is(25700.0), NOT, NOT, NOT]),
    row("pkt-gen, guest and host, TX", &[is(7400.0), is(3440.0), is(40180.0), NOT, NOT, NOT]),
    row("pkt-gen, guest and host, RX", &[is(5400.0), is(3310.0), is(38660.0), NOT, NOT, NOT]),
];

/// "Revisiting Network I/O APIs", generators of 64-byte frames, Mpps, at 10, 25, 50, 75 and 100 % of the clock.
pub const GENERATORS: &[PrintedRow] = &[
    row("netsend, a socket (about)", &[NOT, NOT, NOT, NOT, is(1.0)]),
    row("the kernel's pktgen (about)", &[NOT, NOT, NOT, NOT, is(4.0)]),
    row("netmap (from a third of the clock on)", &[NOT, NOT, is(14.88), is(14.88), is(14.88)]),
];

/// "Revisiting Network I/O APIs", forwarding between two interfaces, 64-byte frames, Mpps.
pub const FORWARDING: &[PrintedRow] = &[
    row("native bridge", &[is(0.69)]),
    row("netmap's bridge (more than)", &[is(10.0)]),
    row("the same over libpcap on netmap (a quarter less than native netmap)", &[NOT]),
    row("Open vSwitch (4 times as much with netmap)", &[NOT]),
    row("Click (10 times as much with netmap)", &[NOT]),
];

/// "ptnet", TCP_STREAM between two guests, Mbit/s.
pub const PTNET_STREAM: &[PrintedRow] =
    &[row("ptnet", &[is(20_000.0)]), row("virtio-net with vhost-net on a bridge; here QEMU's own", &[is(26_000.0)])];

/// "ptnet", pkt-gen between two guests, 60 bytes, Mpps: first with virtio-net headers, then without.
pub const PTNET_PKT_GEN: PrintedRow = row("pkt-gen between two guests", &[is(19.5), is(21.0)]);

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each row has a value, or a mark that there is none, for each column of its table.
    #[test]
    fn rows_have_all_columns() {
        for table in [TAP_ONE_CPU, TAP_ONE_CPU_IN, TAP_TWO_CPUS, TAP_TWO_CPUS_IN, GUESTS_TAP, GUESTS_VALE] {
            for row in table {
                assert_eq!(row.values.len(), 6, "{}", row.name);
                assert!(row.values.iter().flatten().all(|value| *value > 0.0), "{}", row.name);
            }
        }
    }
}
