//! Tests of the HTTP servers with a simulated daemon, and of the documentation of metrics.

mod documented;
mod page;
mod web;
