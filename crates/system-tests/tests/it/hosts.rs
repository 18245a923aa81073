//! The scripts of `tests/hosts`: switches of several hosts.

netvale_system_tests::scripts! {
    "hosts": vxlan evpn evpn_scale evpn_limits guests ovs check; measuring: evpn_moves
}
