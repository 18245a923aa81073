//! What is served beside a daemon.

mod documented;
mod page;
mod web;
