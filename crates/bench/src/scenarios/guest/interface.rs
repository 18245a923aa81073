//! The interfaces that guests have.

use netvale_control::types::{Mac, PortOptions};

/// The machine's interface on the host, where there is no switch.
pub const TAP: &str = "nvg0";

/// The guest's interface, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Our driver on a ptnet port.
    Ptnet,
    /// The kernel's virtio-net on a vhost-user port.
    Vhost,
    /// The kernel's e1000 on the one that QEMU emulates, with a TAP.
    QemuE1000,
    /// An e1000 port.
    E1000(Row),
}

/// The paper's rows: how an e1000 is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The kernel's driver, each cause an interrupt.
    Base,
    /// The same with interrupt moderation.
    Itr,
    /// Our driver with Send Combining and moderation.
    ItrCombining,
    /// Our driver with the status block.
    Csb,
    /// Our driver with the status block and moderation.
    CsbItr,
}

/// All of them, in the paper's order.
pub const ROWS: [Row; 5] = [Row::Base, Row::Itr, Row::ItrCombining, Row::Csb, Row::CsbItr];

/// Interrupt moderation here: 102 µs between two interrupts, counted in 256 ns.
const ITR: u16 = 400;

impl Row {
    fn is_moderated(self) -> bool {
        matches!(self, Row::Itr | Row::ItrCombining | Row::CsbItr)
    }

    /// Parameters of our driver; none with the kernel's.
    fn parameters(self) -> Option<&'static str> {
        match self {
            Row::Base | Row::Itr => None,
            Row::ItrCombining => Some("sc=1 csb=0"),
            Row::Csb | Row::CsbItr => Some("csb=1"),
        }
    }
}

impl Interface {
    /// Its name in a scenario whose own contender is called netvale.
    pub fn name(self, ours: Interface) -> &'static str {
        match self {
            _ if self == ours => "netvale",
            Interface::Ptnet => "netvale-ptnet",
            Interface::Vhost => "netvale-vhost",
            Interface::QemuE1000 => "qemu-e1000",
            Interface::E1000(Row::Base) => "netvale-base",
            Interface::E1000(Row::Itr) => "netvale-itr",
            Interface::E1000(Row::ItrCombining) => "netvale-itr-sc",
            Interface::E1000(Row::Csb) => "netvale-csb",
            Interface::E1000(Row::CsbItr) => "netvale-csb-itr",
        }
    }

    /// A description.
    pub fn about(self) -> &'static str {
        match self {
            Interface::Ptnet => "ptnet on a VALE switch, our driver in the guest",
            Interface::Vhost => "virtio-net on the same switch by vhost-user, the kernel's driver",
            Interface::QemuE1000 => "QEMU's own e1000 on a TAP, the kernel's driver, moderated",
            Interface::E1000(Row::Base) => "e1000 on a VALE switch, the kernel's driver, no moderation (BASE)",
            Interface::E1000(Row::Itr) => "the same with moderation (ITR)",
            Interface::E1000(Row::ItrCombining) => "our driver with Send Combining and moderation (ITR+SC)",
            Interface::E1000(Row::Csb) => "our driver with the status block (CSB)",
            Interface::E1000(Row::CsbItr) => "our driver with the status block and moderation (CSB+ITR)",
        }
    }

    /// It is a port on a netvale switch.
    pub fn is_ours(self) -> bool {
        self != Interface::QemuE1000
    }

    /// The kind of port, and what it is attached with; the guest's number is the last byte of its addresses.
    pub fn port(self, number: u8) -> (&'static str, PortOptions) {
        let name = Some(format!("guest{number}"));
        let o = PortOptions { name, mac: Some(Mac(mac(number))), ..PortOptions::default() };
        match self {
            Interface::Ptnet => ("ptnet", PortOptions { vnet_hdr: 12, ..o }),
            Interface::E1000(row) => {
                ("e1000", PortOptions { itr: Some(if row.is_moderated() { ITR } else { 0 }), ..o })
            }
            _ => ("vhost", o),
        }
    }

    /// QEMU's arguments for it; a port's are those of its socket.
    pub fn devices(self, socket: &str, number: u8) -> Vec<String> {
        let mac = Mac(mac(number)).to_string();
        let tap = format!("tap,id=n0,ifname={TAP},script=no,downscript=no,vhost=off");
        let chardev = format!("socket,id=c0,path={socket}");
        match self {
            Interface::QemuE1000 => vec!["-netdev".into(), tap, "-device".into(), format!("e1000,netdev=n0,mac={mac}")],
            Interface::Ptnet => {
                vec!["-chardev".into(), chardev, "-device".into(), "ivshmem-doorbell,chardev=c0,vectors=3".into()]
            }
            Interface::Vhost => {
                let device = format!("virtio-net-pci,netdev=n0,mac={mac},romfile=");
                let netdev = "vhost-user,id=n0,chardev=c0".to_owned();
                vec!["-chardev".into(), chardev, "-device".into(), device, "-netdev".into(), netdev]
            }
            Interface::E1000(_) => {
                let device = serde_json::json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": socket}});
                vec!["-device".into(), device.to_string()]
            }
        }
    }

    /// The commands that the guest runs before its interface is used.
    pub fn preparation(self) -> String {
        let Interface::E1000(row) = self else { return String::new() };
        let parameters = row.parameters();
        parameters.map_or_else(String::new, |p| format!("busybox rmmod e1000; insmod /lib/nve1000.ko {p}\n"))
    }
}

/// The Ethernet address of a guest.
pub fn mac(number: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, number]
}
