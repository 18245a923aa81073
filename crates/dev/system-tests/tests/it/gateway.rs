//! The scripts of `tests/gateway`: a switch's way out.

netvale_system_tests::scripts! {
    "gateway": way_out; measuring:
}
