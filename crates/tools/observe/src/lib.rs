//! A daemon's counters for monitoring: over HTTP, as metrics in Prometheus' formats and as a page for browsers, and
//! over UDP, as samples for sFlow collectors.
//!
//! This crate is a client of the daemon's control socket and runs in a separate process, so HTTP input never reaches
//! code of the daemon ([ADR
//! 79](https://github.com/netvale/netvale/blob/main/docs/adr/0079-metrics-are-served-beside-the-daemon.md)).
//!
//! | module | what it is |
//! |---|---|
//! | [`http`] | a small HTTP server with limits on requests, connections and times |
//! | [`daemon`] | the control connection, which is opened again after it has ended |
//! | [`gateways`] | counters and flows of gateways, which are separate processes |
//! | [`source`] | all counters; clients that request them at about the same time share one answer of the daemon |
//! | [`metrics`] | the daemon's counters as families of metrics |
//! | [`metrics_page`] | the page `/metrics` |
//! | [`sflow`] | sampled frames and counters, for sFlow collectors |
//! | [`web`] | a page for the browser |
#![forbid(unsafe_code)]

pub mod daemon;
pub mod gateways;
pub mod http;
pub mod metrics;
pub mod metrics_page;
pub mod sflow;
pub mod source;
pub mod web;
