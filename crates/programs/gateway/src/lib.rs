//! A switch's way out, without privilege: a program that opens a port of a switch, and carries what guests send to the
//! host's ordinary sockets.
//!
//! It gives guests addresses and names, answers to ARP, Neighbour Discovery and echo, forwards questions for names, and
//! translates TCP, UDP and ICMP echo of both versions of IP. It is a process of its own, beside the daemon: what guests
//! send is parsed outside the daemon, and a gateway that ends takes its flows with it, and nothing else.
//!
//! One thread does everything; no flow has a thread of its own, and no step waits. All that a guest sends is copied
//! before it is read, and what it can cause to be kept is bounded, for each guest and for all together.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | what a gateway is to do |
//! | [`run`] | the gateway: its loop, and which part takes which packet |
//! | [`core`] | what all parts share |
//! | [`link`] | the port of the switch |
//! | [`frame`] | frames, parsed and made; fragments |
//! | [`net`], [`guests`] | the gateway's addresses; guests' addresses and shares |
//! | [`arp_nd`], [`ra`], [`dhcp`], [`dns`] | what guests need for a network |
//! | [`tcp`], [`udp`], [`icmp`], [`icmp_message`] | the way out |
//! | [`publish`] | the way in |
//! | [`policy`], [`flows`] | what guests may reach; the record of what they did |
//! | [`poller`], [`timers`], [`slots`], [`random`], `sys` | what the loop stands on |
#![deny(unsafe_code)]

pub mod arp_nd;
pub mod core;
pub mod dhcp;
pub mod dns;
pub mod flows;
pub mod frame;
pub mod guests;
pub mod icmp;
pub mod icmp_message;
pub mod link;
pub mod net;
pub mod options;
pub mod policy;
pub mod poller;
pub mod publish;
pub mod ra;
pub mod random;
pub mod run;
pub mod slots;
mod sys;
pub mod tcp;
pub mod timers;
pub mod udp;

pub use options::GatewayOptions;
pub use run::{Gateway, GatewayError};
