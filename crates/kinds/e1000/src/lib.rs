//! The Intel 82540EM ("e1000") as a state machine: registers, EEPROM, PHY, interrupts and their moderation.
//!
//! Section numbers are those of Intel's manual 317453 ("PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual").
//!
//! | module | what it is |
//! |---|---|
//! | `arrays` | arrays of any length, as they are handed over |
//! | [`regs`] | registers and their bits |
//! | [`direction`] | receive and transmit |
//! | [`driver`] | a driver for it |
//! | [`eeprom`] | the EEPROM and its serial interface |
//! | [`phy`] | the PHY behind MDI control |
//! | [`causes`] | interrupt causes, delay timers, throttling |
//! | [`core`] | what workers and the control thread share |
//! | [`ingress`], [`egress`] | its queues, as a switch sees them |
//! | [`memory`] | the guest's memory |
//! | [`paravirt`] | the status block that saves register accesses |
//! | [`port`] | a port: a socket, a thread, two queues |
//! | [`vfio`] | the PCI function |
//! | [`filter`] | the receive filter |
//! | [`headers`] | the work on a packet's headers that descriptors ask for |
//! | [`ring`] | rings of descriptors |
//! | [`state`] | what another process needs to continue a card |
//! | [`stats`] | statistics |
//! | [`device`] | the controller: the register space, and the descriptor operations |
//! | [`tx`] | transmit descriptors and their packets |

mod arrays;
pub mod causes;
pub mod core;
pub mod device;
pub mod direction;
pub mod driver;
pub mod eeprom;
pub mod egress;
pub mod filter;
pub mod headers;
pub mod ingress;
pub mod memory;
pub mod paravirt;
pub mod phy;
pub mod port;
pub mod regs;
pub mod ring;
pub mod state;
pub mod stats;
pub mod tx;
pub mod vfio;
