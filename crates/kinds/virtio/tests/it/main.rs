//! Integration tests of virtqueues, with netvale as device and as driver.

mod exhaustive;
mod killed;
mod oracle;
