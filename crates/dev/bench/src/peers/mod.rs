//! The peers with which netvale is compared. Each peer has a file of its own, and checks whether it can run here.

pub mod across;
pub mod af_packet;
pub mod bridge;
pub mod datagrams;
pub mod dpdk;
pub mod eventfd;
pub mod gvproxy;
pub mod iperf;
pub mod kernel_vxlan;
pub mod newer_dpdk;
pub mod open_vswitch;
pub mod ovs;
pub mod ovs_vxlan;
pub mod packets;
pub mod pingpong;
pub mod station;
pub mod testpmd;
pub mod udp;
pub mod underlay;
