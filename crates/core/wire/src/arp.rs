//! ARP for IPv4 over Ethernet (RFC 826).

use core::borrow::{Borrow, BorrowMut};
use core::net::Ipv4Addr;

use crate::{MacAddr, MalformedPacket, ethernet, field};

/// Offsets of the fields, in bytes from the start of the packet.
mod at {
    pub const OPERATION: usize = 6;
    pub const SENDER_MAC: usize = 8;
    pub const SENDER_IP: usize = 14;
    pub const TARGET_MAC: usize = 18;
    pub const TARGET_IP: usize = 24;
}

/// Length of an ARP packet for IPv4 over Ethernet, bytes.
pub const LEN: usize = 28;
/// Operation: a request for the MAC address of the target.
pub const REQUEST: u16 = 1;
/// Operation: a reply with the MAC address of the sender.
pub const REPLY: u16 = 2;

/// The first fields: hardware type Ethernet, protocol IPv4, address lengths 6 and 4.
const PREAMBLE: [u8; 6] = {
    let [high, low] = ethernet::IPV4.to_be_bytes();
    [0, 1, high, low, 6, 4]
};

/// An ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<B>(B);

impl<'a> Packet<&'a [u8; LEN]> {
    /// Creates a view of the packet at the start of `bytes`. It must be a packet for IPv4 over Ethernet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPacket> {
        let packet: &[u8; LEN] = bytes.first_chunk().ok_or(MalformedPacket::Truncated)?;
        packet.starts_with(&PREAMBLE).then_some(Self(packet)).ok_or(MalformedPacket::BadField)
    }
}

impl<'a> Packet<&'a mut [u8; LEN]> {
    /// Initialises the start of `bytes` as an ARP packet for IPv4 over Ethernet, with all other fields zero.
    pub fn init(bytes: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        let packet: &mut [u8; LEN] = bytes.first_chunk_mut().ok_or(MalformedPacket::Truncated)?;
        *packet = [0; LEN];
        field::set(packet, 0, PREAMBLE);
        Ok(Self(packet))
    }
}

impl<B: Borrow<[u8; LEN]>> Packet<B> {
    /// The operation: [`REQUEST`], [`REPLY`] or another.
    pub fn operation(&self) -> u16 {
        field::get16(self.0.borrow(), at::OPERATION)
    }

    /// The sender's MAC and IP addresses.
    pub fn sender(&self) -> (MacAddr, Ipv4Addr) {
        self.pair(at::SENDER_MAC, at::SENDER_IP)
    }

    /// The target's addresses.
    pub fn target(&self) -> (MacAddr, Ipv4Addr) {
        self.pair(at::TARGET_MAC, at::TARGET_IP)
    }

    fn pair(&self, mac: usize, ip: usize) -> (MacAddr, Ipv4Addr) {
        let bytes = self.0.borrow();
        (MacAddr(field::get(bytes, mac)), Ipv4Addr::from(field::get::<LEN, 4>(bytes, ip)))
    }
}

impl<B: BorrowMut<[u8; LEN]>> Packet<B> {
    /// Stores the operation.
    pub fn set_operation(&mut self, operation: u16) {
        field::set(self.0.borrow_mut(), at::OPERATION, operation.to_be_bytes());
    }

    /// Stores the sender's addresses.
    pub fn set_sender(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        field::set(self.0.borrow_mut(), at::SENDER_MAC, mac.0);
        field::set(self.0.borrow_mut(), at::SENDER_IP, ip.octets());
    }

    /// Stores the target's addresses.
    pub fn set_target(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        field::set(self.0.borrow_mut(), at::TARGET_MAC, mac.0);
        field::set(self.0.borrow_mut(), at::TARGET_IP, ip.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_back_as_written() {
        let mut bytes = [0xee; LEN];
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let ip = Ipv4Addr::new(10, 0, 0, 1);
        let mut packet = Packet::init(&mut bytes).unwrap();
        packet.set_operation(REQUEST);
        packet.set_sender(mac, ip);
        packet.set_target(MacAddr::ZERO, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.operation(), packet.sender()), (REQUEST, (mac, ip)));
        assert_eq!(packet.target(), (MacAddr::ZERO, Ipv4Addr::new(10, 0, 0, 2)));
    }

    #[test]
    fn other_address_families_are_refused() {
        let mut bytes = [0; LEN];
        assert_eq!(Packet::parse(&bytes).unwrap_err(), MalformedPacket::BadField);
        assert_eq!(Packet::parse(&bytes[..27]).unwrap_err(), MalformedPacket::Truncated);
        assert_eq!(Packet::init(&mut bytes[..27]).unwrap_err(), MalformedPacket::Truncated);
    }
}
