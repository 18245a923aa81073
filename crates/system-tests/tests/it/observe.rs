//! The scripts of `tests/observe`: what others see of a running daemon.

netvale_system_tests::scripts! { "observe": capture completion events sflow trace web which_daemon; measuring: metrics }
