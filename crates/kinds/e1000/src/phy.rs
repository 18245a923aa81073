//! The 82540EM's PHY, accessed through MDIC: linked at 1,000 Mbit/s full duplex whenever a cable is plugged in
//! (§13.4.8; IEEE 802.3 §22.2.4).

use serde::{Deserialize, Serialize};

/// MDIC: reads a PHY register.
const READ: u32 = 0b10 << 26;
/// MDIC: writes a PHY register.
const WRITE: u32 = 0b01 << 26;
/// MDIC: mask of the operation.
const OPERATION: u32 = 0b11 << 26;
/// MDIC: the access is done (§13.4.8).
pub const READY: u32 = 1 << 28;
/// MDIC: requests an interrupt when the access is done.
pub const INTERRUPT: u32 = 1 << 29;
const ERROR: u32 = 1 << 30;
/// Address of the PHY on the MDIO bus.
const ADDRESS: u32 = 1;

const CONTROL: usize = 0;
const STATUS: usize = 1;
const ID1: usize = 2;
const ID2: usize = 3;
const PARTNER: usize = 5;
const EXPANSION: usize = 6;
const GIGABIT_STATUS: usize = 10;
const EXTENDED_STATUS: usize = 15;
const SPECIFIC_STATUS: usize = 17;

/// Control register: resets the PHY.
const CONTROL_RESET: u16 = 1 << 15;
/// Control register: loops sent frames back.
const CONTROL_LOOPBACK: u16 = 1 << 14;
/// Control register: restarts autonegotiation.
const CONTROL_RESTART: u16 = 1 << 9;
/// Control register: powers the PHY down.
const CONTROL_POWER_DOWN: u16 = 1 << 11;
/// Bits of the status register: capabilities.
const ABLE: u16 = 0x7949;
/// Bits of the status register: negotiation complete and link up.
const LINKED: u16 = 1 << 5 | 1 << 2;
/// Bits of the specific status register: 1,000 Mbit/s, full duplex, speed and duplex resolved.
const RESOLVED: u16 = 0b10 << 14 | 1 << 13 | 1 << 11;
/// Bit of the specific status register: link up.
const SPECIFIC_LINK: u16 = 1 << 10;

/// The PHY of a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phy {
    registers: [u16; 32],
    /// Whether the cable is plugged in.
    cable: bool,
    mdic: u32,
}

impl Phy {
    /// Creates a PHY, with or without a cable.
    pub fn new(cable: bool) -> Phy {
        let mut this = Phy { registers: [0; 32], cable, mdic: READY };
        this.reset();
        this
    }

    /// Resets to the state after power-up; the cable stays plugged in or unplugged.
    pub fn reset(&mut self) {
        self.registers = [0; 32];
        // Autonegotiation, full duplex, 1,000 Mbit/s; advertised abilities; advertised gigabit abilities.
        self.registers[CONTROL] = 0x1140;
        self.registers[4] = 0x0de1;
        self.registers[9] = 0x0300;
        // PHY-specific registers for crossover and FIFOs, with the values that drivers of a copper PHY expect.
        self.registers[16] = 0x0068;
        self.registers[20] = 0x0c60;
    }

    /// Plugs the cable in (true) or unplugs it (false). Returns whether the link changed.
    pub fn set_cable(&mut self, cable: bool) -> bool {
        let before = self.is_linked();
        self.cable = cable;
        before != self.is_linked()
    }

    /// Whether the link is up.
    pub fn is_linked(&self) -> bool {
        self.cable && self.registers[CONTROL] & CONTROL_POWER_DOWN == 0
    }

    /// Whether sent frames are looped back.
    pub fn is_looped(&self) -> bool {
        self.registers[CONTROL] & CONTROL_LOOPBACK != 0
    }

    fn register(&self, number: usize) -> u16 {
        let when = |on: bool, bits: u16| if on { bits } else { 0 };
        let linked = self.is_linked();
        match number {
            STATUS => ABLE | when(linked, LINKED),
            ID1 => 0x0141,
            ID2 => 0x0c20,
            // The link partner has the same abilities as this PHY.
            PARTNER => when(linked, 0x45e1),
            EXPANSION => when(linked, 1),
            GIGABIT_STATUS => when(linked, 0x3c00),
            EXTENDED_STATUS => 0x3000,
            SPECIFIC_STATUS => when(linked, RESOLVED | SPECIFIC_LINK),
            n => self.registers.get(n).copied().unwrap_or(0),
        }
    }

    /// The value of MDIC as read.
    pub fn mdic(&self) -> u32 {
        self.mdic
    }

    /// Handles a write of MDIC. The access completes immediately. Returns whether the link changed.
    pub fn access(&mut self, value: u32) -> bool {
        let number = (value >> 16 & 0x1f) as usize;
        let before = self.is_linked();
        let kept = value & !(READY | ERROR | 0xffff);
        self.mdic = if value >> 21 & 0x1f != ADDRESS {
            kept | READY | ERROR
        } else {
            match value & OPERATION {
                READ => kept | READY | u32::from(self.register(number)),
                WRITE => {
                    self.write(number, value as u16);
                    value | READY
                }
                _ => value | READY | ERROR,
            }
        };
        before != self.is_linked()
    }

    fn write(&mut self, number: usize, value: u16) {
        match number {
            CONTROL if value & CONTROL_RESET != 0 => self.reset(),
            CONTROL => self.registers[CONTROL] = value & !CONTROL_RESTART,
            STATUS | ID1 | ID2 | PARTNER | EXPANSION | GIGABIT_STATUS | EXTENDED_STATUS | SPECIFIC_STATUS => {}
            n => {
                if let Some(register) = self.registers.get_mut(n) {
                    *register = value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(phy: &mut Phy, number: u32) -> u16 {
        assert!(!phy.access(READ | ADDRESS << 21 | number << 16));
        assert_eq!(phy.mdic() & (READY | ERROR), READY);
        phy.mdic() as u16
    }

    fn write(phy: &mut Phy, number: u32, value: u16) -> bool {
        phy.access(WRITE | ADDRESS << 21 | number << 16 | u32::from(value))
    }

    /// Objective: a driver finds the PHY by its identifiers, and a negotiated link only while a cable is plugged in.
    #[test]
    fn a_driver_finds_a_link_only_with_a_cable() {
        let mut phy = Phy::new(true);
        assert_eq!((read(&mut phy, 2), read(&mut phy, 3)), (0x0141, 0x0c20));
        assert_eq!(read(&mut phy, 1) & LINKED, LINKED);
        assert_eq!(read(&mut phy, 17), RESOLVED | SPECIFIC_LINK);
        assert!(phy.set_cable(false) && !phy.set_cable(false));
        assert_eq!((read(&mut phy, 1) & LINKED, read(&mut phy, 17), read(&mut phy, 5)), (0, 0, 0));
        assert!(phy.set_cable(true));
        // Power down, then power up with a reset.
        assert!(write(&mut phy, 0, CONTROL_POWER_DOWN) && !phy.is_linked());
        assert!(write(&mut phy, 0, CONTROL_RESET) && phy.is_linked());
        assert_eq!(read(&mut phy, 0), 0x1140, "the reset bit must clear itself");
    }

    /// Objective: written values are read back, except bits that the PHY sets; accesses to absent PHYs and unknown
    /// operations report an error.
    #[test]
    fn written_registers_read_back() {
        let mut phy = Phy::new(true);
        write(&mut phy, 4, 0x01e1);
        write(&mut phy, 2, 0xffff);
        assert_eq!((read(&mut phy, 4), read(&mut phy, 2)), (0x01e1, 0x0141));
        phy.access(READ | 2 << 21 | 1 << 16);
        assert_eq!(phy.mdic() & (READY | ERROR), READY | ERROR);
        phy.access(OPERATION | ADDRESS << 21);
        assert_eq!(phy.mdic() & (READY | ERROR), READY | ERROR);
        write(&mut phy, 0, 0x1340);
        assert_eq!(read(&mut phy, 0), 0x1140, "negotiation is done immediately");
    }
}
