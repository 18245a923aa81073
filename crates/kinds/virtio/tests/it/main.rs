//! Virtqueues.

mod exhaustive;
mod killed;
mod oracle;
