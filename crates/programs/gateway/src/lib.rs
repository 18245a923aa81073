//! A user-space NAT gateway for a switch, without privileges: a process that opens a port on the switch, and relays
//! guests' traffic through ordinary sockets of the host.
//!
//! It assigns addresses (DHCP, router advertisements), answers ARP, Neighbour Discovery and echo requests, forwards DNS
//! questions, and translates TCP, UDP and ICMP echo of both IP versions. It is a process separate from the daemon:
//! guests' packets are parsed outside the daemon, and if a gateway ends, only its own flows end.
//!
//! One thread does everything, without blocking. Guests' frames are copied before they are parsed, and the state that
//! guests can create is bounded, for each guest and for all together.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | a gateway's configuration |
//! | [`run`] | the gateway's event loop, and which part handles which packet |
//! | [`control`] | requests to a running gateway |
//! | [`core`] | the state that all parts share |
//! | [`link`] | the gateway's port of the switch, or the TAP of a single guest |
//! | [`frame`] | parsing and building of frames; reassembly |
//! | [`net`], [`guests`] | the gateway's addresses; guests' addresses and their use of resources |
//! | [`ports`] | the names of the switch's private ports, as the daemon reports them |
//! | [`arp_nd`], [`ra`], [`dhcp`], [`dhcp6`], [`dns`] | address resolution, address assignment, names |
//! | [`tcp`], [`udp`], [`icmp`], [`icmp_message`] | flows from guests to other hosts |
//! | [`outward`] | the host's sockets through which datagrams and echo requests leave |
//! | [`publish`] | published ports: flows from the host's side to guests |
//! | [`served`], [`dial`] | UNIX sockets of the host: behind the gateway's own ports; for connections to guests |
//! | [`policy`], [`resolved`] | which destinations guests may reach; the names of addresses |
//! | [`rates`] | limits of guests' rates |
//! | [`flows`] | the flow log |
//! | [`confine`] | what the process may do once it runs |
//! | [`poller`], [`timers`], [`slots`], [`random`], `sys` | epoll set, timers, tables, random numbers, system calls |
#![deny(unsafe_code)]

pub mod arp_nd;
pub mod confine;
pub mod control;
pub mod core;
pub mod dhcp;
pub mod dhcp6;
pub mod dial;
pub mod dns;
pub mod flows;
pub mod frame;
pub mod guests;
pub mod icmp;
pub mod icmp_message;
pub mod link;
pub mod net;
pub mod options;
pub mod outward;
pub mod policy;
pub mod poller;
pub mod ports;
pub mod publish;
pub mod ra;
pub mod random;
pub mod rates;
pub mod resolved;
pub mod run;
pub mod served;
pub mod slots;
mod sys;
pub mod tcp;
pub mod timers;
pub mod udp;

pub use options::GatewayOptions;
pub use run::{Gateway, GatewayError};
