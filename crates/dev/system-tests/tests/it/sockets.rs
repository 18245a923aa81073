//! The scripts of `tests/sockets`: other projects' programs at socket ports.

netvale_system_tests::scripts! {
    "sockets": openqa vde_switch; measuring:
}
