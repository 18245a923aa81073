//! The scripts of `tests/observe`: what can be observed of a running daemon.

netvale_system_tests::scripts! {
    "observe": capture completion events lying_daemon sflow surroundings trace web which_daemon;
    measuring: metrics
}
