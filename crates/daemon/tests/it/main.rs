//! Tests of daemons through their sockets.
//!
//! Tests that need root's rights, or the right to create interfaces, are in modules named `as_root`: `make test` does
//! not run these modules, but `make test-system` does.

mod blocked;
mod brought;
mod common;
mod configuration;
mod continued;
mod continued_files;
mod continued_persistent;
mod e1000;
mod events;
mod handover_guests;
mod hostile;
mod idle;
mod kicks;
mod killed;
mod killed_files;
mod killed_guests;
mod killed_tunnels;
mod local;
mod malformed;
mod measuring;
mod monitors;
mod moving;
mod names;
mod options;
mod passthrough;
mod pcap;
mod private;
mod ptnet;
mod ptnet_published;
mod sockets;
mod traces;
mod vanish;
mod workers;

mod as_root {
    mod applied;
    mod authorisation;
    mod brought_tap;
    mod continued_forged;
    mod files;
    mod gone_interfaces;
    mod heard_addresses;
    mod holes;
    mod kept_from_the_wire;
    mod killed_interfaces;
    mod names;
    mod neighbours;
    mod nic;
    mod policies_by_right;
    mod sockets;
    mod tap;
    mod vlan_tags;
}
