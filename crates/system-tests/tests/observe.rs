//! The scripts of `tests/observe`: what a running daemon shows of itself.

netvale_system_tests::scripts! {
    "observe": events
}
