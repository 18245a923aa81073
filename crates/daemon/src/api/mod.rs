//! Executes requests on the control socket and the attach socket, and attaches the ports of the configuration. Each
//! request is parsed, checked for permission ([`crate::permission`]), and passed to the kind of port that it concerns
//! ([`crate::ports`]).
//!
//! | module | contents |
//! |---|---|
//! | [`control`] | JSON-RPC on the control socket |
//! | [`attaching`] | `port.attach`, and the ports of the configuration |
//! | [`opening`] | messages on attach connections |
//! | [`netmap`] | netmap's other requests, on attach connections |
//! | [`handover`] | the hand-over to a successor |
//! | [`inspect`] | replies to `list` and `show` |
//! | [`counting`] | counters for `top` and for metrics |
//! | [`events`] | `subscribe` and `unsubscribe` |
//! | [`trace`] | `trace.begin` and `trace.read` |
//! | [`configuration`] | `config.apply` and `config.export`, and SIGHUP |

pub mod attaching;
pub mod configuration;
pub mod control;
pub mod counting;
pub mod events;
pub mod handover;
pub mod inspect;
pub mod netmap;
pub mod opening;
pub mod trace;
