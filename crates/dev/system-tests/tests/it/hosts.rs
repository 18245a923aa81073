//! The scripts of `tests/hosts`: switches of several hosts.

netvale_system_tests::scripts! {
    "hosts": evpn_scale evpn_limits guests ovs check passt older_kernel; measuring: vxlan evpn evpn_moves
}
