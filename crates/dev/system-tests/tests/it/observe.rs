//! The scripts of `tests/observe`: what others see of a running daemon.

netvale_system_tests::scripts! {
    "observe": capture completion events lying_daemon sflow surroundings trace web which_daemon;
    measuring: metrics
}
