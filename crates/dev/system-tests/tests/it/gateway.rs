//! The scripts of `tests/gateway`: guests' access to other networks through `netvale gateway`.

netvale_system_tests::scripts! {
    "gateway": clones dhcpv6 guests gvproxy lab rules sandbox snapshot tunnels way_out; measuring: limits
}
