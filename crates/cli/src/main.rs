//! The netvale command.
fn main() {}
