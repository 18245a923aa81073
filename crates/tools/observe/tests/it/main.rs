//! Tests of the servers with a simulated daemon.

mod documented;
mod page;
mod web;
