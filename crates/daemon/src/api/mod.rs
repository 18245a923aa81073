//! The requests on the two sockets, and the ports of the configuration. Each request is parsed, admitted
//! ([`crate::permission`]), and handed to the kind of port that it concerns ([`crate::ports`]).
//!
//! | module | what it serves |
//! |---|---|
//! | [`control`] | JSON-RPC on the control socket |
//! | [`attaching`] | its `port.attach`, and the configuration's ports |
//! | [`opening`] | messages on attach connections |
//! | [`netmap`] | those of them that carry netmap's other requests |
//! | [`handover`] | a successor that takes the daemon's place |
//! | [`inspect`] | replies to `list` and `show` |
//! | [`counting`] | replies to `top` and for metrics: counters |
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
