//! Offsets of the 82540EM's registers in the register space, and their bits (Intel, "PCI/PCI-X Family of Gigabit
//! Ethernet Controllers Software Developer's Manual", 317453, §13).

/// Size of the register space in bytes (§4.1).
pub const SPACE: u32 = 0x2_0000;

/// Device control (§13.4.1).
pub const CTRL: u32 = 0x0000;
/// CTRL: sets the link up.
pub const CTRL_SLU: u32 = 1 << 6;
/// CTRL: global reset; clears itself.
pub const CTRL_RST: u32 = 1 << 26;
/// CTRL: removes VLAN tags from received frames, and inserts them into sent frames on request.
pub const CTRL_VME: u32 = 1 << 30;
/// CTRL: resets the PHY; clears itself.
pub const CTRL_PHY_RST: u32 = 1 << 31;

/// Device status (§13.4.2).
pub const STATUS: u32 = 0x0008;
/// STATUS: full duplex.
pub const STATUS_FD: u32 = 1;
/// STATUS: link up.
pub const STATUS_LU: u32 = 1 << 1;
/// STATUS: 1,000 Mbit/s, as set and as detected.
pub const STATUS_SPEED_1000: u32 = 1 << 7 | 1 << 9;

/// EEPROM control (§13.4.3).
pub const EECD: u32 = 0x0010;
/// EEPROM read (§13.4.4).
pub const EERD: u32 = 0x0014;
/// Extended device control (§13.4.6).
pub const CTRL_EXT: u32 = 0x0018;
/// CTRL_EXT: resets the device from its EEPROM; clears itself.
pub const CTRL_EXT_EE_RST: u32 = 1 << 13;
/// MDI control (§13.4.8).
pub const MDIC: u32 = 0x0020;
/// Flow control: low half of the address (§13.4.9–13.4.11).
pub const FCAL: u32 = 0x0028;
/// Flow control: high half of the address.
pub const FCAH: u32 = 0x002c;
/// Flow control: Ethertype.
pub const FCT: u32 = 0x0030;
/// Ethertype of VLAN tags (§13.4.12).
pub const VET: u32 = 0x0038;

/// Interrupt causes that are set; reading clears them (§13.4.17).
pub const ICR: u32 = 0x00c0;
/// Interrupt throttling: minimum time between two interrupts, in units of 256 ns (§13.4.18).
pub const ITR: u32 = 0x00c4;
/// Sets interrupt causes (§13.4.19).
pub const ICS: u32 = 0x00c8;
/// Interrupt mask: a read returns the mask, a write sets bits, which unmasks causes (§13.4.20).
pub const IMS: u32 = 0x00d0;
/// Clears bits of the interrupt mask (§13.4.21).
pub const IMC: u32 = 0x00d8;

/// ICR: a transmit descriptor was written back.
pub const ICR_TXDW: u32 = 1;
/// ICR: the transmit queue is empty.
pub const ICR_TXQE: u32 = 1 << 1;
/// ICR: the link changed.
pub const ICR_LSC: u32 = 1 << 2;
/// ICR: few receive descriptors are left.
pub const ICR_RXDMT0: u32 = 1 << 4;
/// ICR: a frame was lost for lack of receive descriptors.
pub const ICR_RXO: u32 = 1 << 6;
/// ICR: frames were received.
pub const ICR_RXT0: u32 = 1 << 7;
/// ICR: an MDIO access is complete.
pub const ICR_MDAC: u32 = 1 << 9;
/// ICR: all causes.
///
/// They include reserved causes, which drivers set to test their interrupt.
pub const ICR_ALL: u32 = 0x0001_ffff;

/// Receive control (§13.4.22).
pub const RCTL: u32 = 0x0100;
/// RCTL: receiver on.
pub const RCTL_EN: u32 = 1 << 1;
/// RCTL: receives frames to any unicast address.
pub const RCTL_UPE: u32 = 1 << 3;
/// RCTL: receives frames to any multicast address.
pub const RCTL_MPE: u32 = 1 << 4;
/// RCTL: receives frames longer than 1,522 bytes.
pub const RCTL_LPE: u32 = 1 << 5;
/// RCTL: mask of the loopback mode.
pub const RCTL_LBM: u32 = 0b11 << 6;
/// RCTL: loopback in the MAC, before the PHY.
pub const RCTL_LBM_MAC: u32 = 0b01 << 6;
/// RCTL: receives broadcast frames.
pub const RCTL_BAM: u32 = 1 << 15;
/// RCTL: VLAN filter on.
pub const RCTL_VFE: u32 = 1 << 18;
/// RCTL: buffers are 16 times as large.
pub const RCTL_BSEX: u32 = 1 << 25;
/// RCTL: strips the Ethernet CRC.
pub const RCTL_SECRC: u32 = 1 << 26;

/// Transmit control (§13.4.33).
pub const TCTL: u32 = 0x0400;
/// TCTL: transmitter on.
pub const TCTL_EN: u32 = 1 << 1;
/// TCTL: pads short frames.
pub const TCTL_PSP: u32 = 1 << 3;

/// Packet buffer allocation (§13.4.49).
pub const PBA: u32 = 0x1000;

/// Low half of the receive ring's address; first register of the ring (§13.4.25).
pub const RDBAL: u32 = 0x2800;
/// High half of the receive ring's address (§13.4.26).
pub const RDBAH: u32 = 0x2804;
/// Length of the receive ring in bytes (§13.4.27).
pub const RDLEN: u32 = 0x2808;
/// Receive head (§13.4.28).
pub const RDH: u32 = 0x2810;
/// Receive tail (§13.4.29).
pub const RDT: u32 = 0x2818;
/// Receive delay timer, in units of 1.024 µs (§13.4.30).
pub const RDTR: u32 = 0x2820;
/// RDTR: sets a delayed cause immediately.
pub const RDTR_FPD: u32 = 1 << 31;
/// Receive absolute delay timer, in units of 1.024 µs (§13.4.31).
pub const RADV: u32 = 0x282c;
/// Length in bytes up to which received frames interrupt without delay (§13.4.32).
pub const RSRPD: u32 = 0x2c00;

/// Low half of the status block's address ([`crate::paravirt`]). Writing this register enables the block; without a
/// block, the register reads as zero.
pub const CSBAL: u32 = 0x2830;
/// High half of the status block's address, which the driver must write before the low half.
pub const CSBAH: u32 = 0x2834;

/// Low half of the transmit ring's address; first register of the ring (§13.4.36).
pub const TDBAL: u32 = 0x3800;
/// High half of the transmit ring's address (§13.4.37).
pub const TDBAH: u32 = 0x3804;
/// Length of the transmit ring in bytes (§13.4.38).
pub const TDLEN: u32 = 0x3808;
/// Transmit head (§13.4.39).
pub const TDH: u32 = 0x3810;
/// Transmit tail (§13.4.40).
pub const TDT: u32 = 0x3818;
/// Transmit delay timer, in units of 1.024 µs (§13.4.41).
pub const TIDV: u32 = 0x3820;
/// Transmit absolute delay timer, in units of 1.024 µs (§13.4.44).
pub const TADV: u32 = 0x382c;

/// Statistics (§13.7).
pub const STATISTICS: std::ops::Range<u32> = 0x4000..0x4100;

/// Receive checksum control (§13.4.47).
pub const RXCSUM: u32 = 0x5000;
/// Hash table of multicast addresses, 128 words (§13.5.1).
pub const MTA: std::ops::Range<u32> = 0x5200..0x5400;
/// Receive addresses, 16 pairs of low and high half (§13.5.2, §13.5.3).
pub const RA: std::ops::Range<u32> = 0x5400..0x5480;
/// High half of a receive address: the address is valid.
pub const RAH_AV: u32 = 1 << 31;
/// VLAN filter table: one bit for each VLAN to receive, 128 words (§13.5.4).
pub const VFTA: std::ops::Range<u32> = 0x5600..0x5800;
