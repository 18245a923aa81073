//! A daemon's figures over HTTP: as metrics in Prometheus' formats for those who watch many hosts, and as a page to
//! look at in a browser.
//!
//! All of it runs beside the daemon, in a client of its control socket: what comes over HTTP reaches no code of the
//! daemon's ([ADR
//! 79](https://github.com/netvale/netvale/blob/main/docs/adr/0079-metrics-are-served-beside-the-daemon.md)).
//!
//! | module | what it is |
//! |---|---|
//! | [`http`] | a server for small answers: bounded heads, connections and times. It knows no figures |
//! | [`daemon`] | the control connection, made anew when it has ended |
//! | [`source`] | all counters: one request for all who ask at about the same time |
//! | [`metrics`] | what the daemon counts, as families of metrics |
//! | [`metrics_page`] | the page `/metrics` |
//! | [`sflow`] | sampled frames and counters, for collectors that speak sFlow |
//! | [`web`] | a page to look at, in a browser |
#![forbid(unsafe_code)]

pub mod daemon;
pub mod http;
pub mod metrics;
pub mod metrics_page;
pub mod sflow;
pub mod source;
pub mod web;
