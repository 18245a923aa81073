//! A daemon's counters over HTTP: metrics in Prometheus' formats for monitoring many hosts, and a page for the browser.
//!
//! This crate is a client of the daemon's control socket, in a process of its own: HTTP input reaches no code of the
//! daemon ([ADR
//! 79](https://github.com/netvale/netvale/blob/main/docs/adr/0079-metrics-are-served-beside-the-daemon.md)).
//!
//! | module | what it is |
//! |---|---|
//! | [`http`] | a server for small answers, with bounded heads, connections and times |
//! | [`daemon`] | the control connection, renewed after it has ended |
//! | [`source`] | all counters; one request serves all clients that ask at about the same time |
//! | [`metrics`] | the daemon's counters as families of metrics |
//! | [`metrics_page`] | the page `/metrics` |
//! | [`sflow`] | sampled frames and counters, for sFlow collectors |
//! | [`web`] | a page for the browser |
#![forbid(unsafe_code)]

pub mod daemon;
pub mod http;
pub mod metrics;
pub mod metrics_page;
pub mod sflow;
pub mod source;
pub mod web;
