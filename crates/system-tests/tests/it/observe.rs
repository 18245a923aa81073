//! The scripts of `tests/observe`: what others see of a running daemon.

netvale_system_tests::scripts! { "observe": capture events sflow trace web; measuring: metrics }
