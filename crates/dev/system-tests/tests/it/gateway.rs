//! The scripts of `tests/gateway`: guests' access to other networks through `netvale gateway`.

netvale_system_tests::scripts! {
    "gateway": clones gvproxy rules sandbox snapshot way_out; measuring:
}
