//! The network interfaces of guests.

use netvale_control::types::Mac;

use super::*;

/// The machine's TAP on the host, if there is no bridge.
pub const TAP: &str = "nvg0";

/// Returns the name of a guest's TAP on the kernel's bridge.
pub fn bridged_tap(number: u8) -> String {
    format!("nvg{number}")
}

/// The device, and its back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    /// A ptnet port on netvale's switch.
    Ptnet,
    /// A vhost-user port on netvale's switch.
    Vhost,
    /// The e1000 that QEMU emulates, on a TAP.
    QemuE1000,
    /// The virtio-net that QEMU emulates, on a TAP.
    QemuVirtio,
    /// netvale's e1000, a port on its switch.
    E1000,
    /// The e1000 that QEMU emulates, on a port that QEMU opens through netmap's API.
    NetmapE1000,
    /// The virtio-net that QEMU emulates, on a port that QEMU opens through netmap's API.
    NetmapVirtio,
}

/// The guest's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the contender with this interface; empty for the scenario's own interface.
    pub name: &'static str,
    /// A description in one line, for the list of contenders.
    pub about: &'static str,
    device: Device,
    /// Minimum time between two interrupts, in units of 256 ns; 0: no moderation.
    itr: u16,
    /// Parameters of netvale's driver for the e1000; empty: the kernel's driver is used.
    parameters: &'static str,
}

/// Default interrupt moderation: 102 µs between two interrupts.
const ITR: u16 = 400;
/// Interrupt moderation in the paper "Speeding Up Packet I/O in Virtual Machines": 25 µs.
const PAPERS_ITR: u16 = 98;

const fn interface(name: &'static str, about: &'static str, device: Device) -> Interface {
    Interface { name, about, device, itr: 0, parameters: "" }
}

const fn row(name: &'static str, about: &'static str, itr: u16, parameters: &'static str) -> Interface {
    Interface { itr, parameters, ..interface(name, about, Device::E1000) }
}

/// netvale's driver on a ptnet port.
pub const PTNET: Interface =
    interface("netvale-ptnet", "ptnet on a VALE switch, our driver in the guest", Device::Ptnet);
/// The kernel's virtio-net on a vhost-user port.
pub const VHOST: Interface =
    interface("netvale-vhost", "virtio-net on the same switch by vhost-user, the kernel's driver", Device::Vhost);
/// The kernel's driver on QEMU's e1000.
pub const QEMU_E1000: Interface =
    interface("qemu-e1000", "QEMU's own e1000 on a TAP, the kernel's driver, moderated", Device::QemuE1000);

/// The kernel's driver on QEMU's virtio-net.
pub const QEMU_VIRTIO: Interface =
    interface("qemu-virtio", "QEMU's own virtio-net on TAPs, the kernel's bridge between them", Device::QemuVirtio);

/// The kernel's driver on QEMU's e1000 with a netmap back end.
pub const NETMAP_E1000: Interface =
    interface("qemu-e1000-netmap", "QEMU's own e1000 by its netmap back end on the same switch", Device::NetmapE1000);

/// The kernel's driver on QEMU's virtio-net with a netmap back end.
pub const NETMAP_VIRTIO: Interface = interface(
    "qemu-virtio-netmap",
    "QEMU's own virtio-net by its netmap back end on the same switch",
    Device::NetmapVirtio,
);

/// The kernel's driver on netvale's e1000, with the paper's interrupt moderation.
pub const SHORT_ITR: Interface =
    row("netvale-itr-25us", "e1000 on a VALE switch, the kernel's driver, 25 µs between interrupts", PAPERS_ITR, "");

/// The ways to drive netvale's e1000, in the order of the rows of the table in that paper.
pub const ROWS: [Interface; 5] = [
    row("netvale-base", "e1000 on a VALE switch, the kernel's driver, no moderation (BASE)", 0, ""),
    row("netvale-itr", "the same with moderation (ITR)", ITR, ""),
    row("netvale-itr-sc", "our driver with Send Combining and moderation (ITR+SC)", ITR, "sc=1 csb=0"),
    row("netvale-csb", "our driver with the status block (CSB)", 0, "csb=1"),
    row("netvale-csb-itr", "our driver with the status block and moderation (CSB+ITR)", ITR, "csb=1"),
];

impl Interface {
    /// Returns whether the interface is a port on a netvale switch.
    pub fn is_ours(self) -> bool {
        !matches!(self.device, Device::QemuE1000 | Device::QemuVirtio)
    }

    /// Returns whether the interface is netvale's e1000.
    pub fn is_our_e1000(self) -> bool {
        self.device == Device::E1000
    }

    /// Returns whether the interface is QEMU's device with a netmap back end.
    pub fn is_by_netmap(self) -> bool {
        matches!(self.device, Device::NetmapE1000 | Device::NetmapVirtio)
    }

    /// Returns QEMU's name for the registers that QEMU emulates and to which it can count accesses; `None` if there are
    /// no such registers: a doorbell of QEMU's virtio-net is not counted, because the kernel handles it first.
    pub fn registers(self) -> Option<&'static str> {
        matches!(self.device, Device::QemuE1000 | Device::NetmapE1000).then_some("e1000")
    }

    /// Returns whether the interface's port counts doorbells or register accesses.
    pub fn has_doorbells(self) -> bool {
        self.is_ours() && !self.is_by_netmap()
    }

    /// Returns the port to attach and its options; `None` if QEMU itself opens a port or TAP. `number` is the last byte
    /// of the guest's addresses.
    pub fn port(self, socket: &str, number: u8) -> Option<(String, PortOptions)> {
        let name = port_name(number);
        let mac = Some(Mac(mac(number)));
        let options = PortOptions { name: Some(name.clone()), mac, ..PortOptions::default() };
        Some(match self.device {
            Device::Ptnet => (format!("ptnet:{socket}"), PortOptions { vnet_hdr: 12, ..options }),
            Device::E1000 => (format!("e1000:{socket}"), PortOptions { itr: Some(self.itr), ..options }),
            // QEMU's e1000 cannot receive unsegmented (GSO) frames.
            Device::NetmapE1000 => (name, PortOptions { no_segments: true, ..PortOptions::default() }),
            Device::Vhost => (format!("vhost:{socket}"), options),
            Device::NetmapVirtio | Device::QemuE1000 | Device::QemuVirtio => return None,
        })
    }

    /// Returns QEMU's arguments for the device; `at` is the path of a port's socket, or the name of the TAP.
    pub fn devices(self, at: &str, number: u8) -> Vec<String> {
        let mac = Mac(mac(number)).to_string();
        let tap = format!("tap,id=n0,ifname={at},script=no,downscript=no,vhost=off");
        let netmap = format!("netmap,id=n0,ifname={VALE}:{}", port_name(number));
        let chardev = format!("socket,id=c0,path={at}");
        let e1000 = format!("e1000,netdev=n0,mac={mac},romfile=");
        let virtio = format!("virtio-net-pci,netdev=n0,mac={mac},romfile=");
        let vfio = serde_json::json!({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": at}}).to_string();
        let words = match self.device {
            Device::QemuE1000 => vec!["-netdev", &tap, "-device", &e1000],
            Device::QemuVirtio => vec!["-netdev", &tap, "-device", &virtio],
            Device::NetmapE1000 => vec!["-netdev", &netmap, "-device", &e1000],
            Device::NetmapVirtio => vec!["-netdev", &netmap, "-device", &virtio],
            Device::Ptnet => vec!["-chardev", &chardev, "-device", "ivshmem-doorbell,chardev=c0,vectors=3"],
            Device::Vhost => {
                vec!["-chardev", &chardev, "-device", &virtio, "-netdev", "vhost-user,id=n0,chardev=c0"]
            }
            Device::E1000 => vec!["-device", &vfio],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// Returns the commands that the guest runs before it uses its interface.
    pub fn preparation(self) -> String {
        match self.parameters {
            "" => String::new(),
            parameters => format!("busybox rmmod e1000; insmod /lib/nve1000.ko {parameters}\n"),
        }
    }
}

/// Returns the name of a guest's port.
pub fn port_name(number: u8) -> String {
    format!("guest{number}")
}

/// Returns the Ethernet address of a guest.
pub fn mac(number: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, number]
}
