//! Servers beside a daemon.

mod documented;
mod page;
mod web;
