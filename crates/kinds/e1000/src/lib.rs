//! The Intel 82540EM ("e1000") Ethernet controller: a state machine of registers, EEPROM, PHY and interrupts, a port
//! for it, and a driver.
//!
//! Section numbers are those of Intel's manual 317453 ("PCI/PCI-X Family of Gigabit Ethernet Controllers Software
//! Developer's Manual").
//!
//! | module | what it is |
//! |---|---|
//! | `arrays` | serialization of arrays of any length |
//! | [`regs`] | registers and their bits |
//! | [`direction`] | receive and transmit |
//! | [`driver`] | a user-space driver |
//! | [`eeprom`] | the EEPROM and its serial interface |
//! | [`phy`] | the PHY behind MDI control |
//! | [`causes`] | interrupt causes, delay timers, throttling |
//! | [`core`] | the controller with its memory and interrupt, shared by workers and the control thread |
//! | [`ingress`], [`egress`] | the card's queues as a switch uses them |
//! | [`memory`] | the guest's memory |
//! | [`paravirt`] | the status block that saves register accesses |
//! | [`port`] | a port: a socket, a control thread, two queues |
//! | [`vfio`] | the PCI function |
//! | [`filter`] | the receive filter |
//! | [`headers`] | changes to a packet's headers that descriptors request |
//! | [`ring`] | descriptor rings |
//! | [`state`] | saved state of a card |
//! | [`stats`] | statistics |
//! | [`device`] | the controller: register space, operations on descriptors |
//! | [`tx`] | transmit descriptors, and packets assembled from them |

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
