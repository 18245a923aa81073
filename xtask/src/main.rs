//! Checks that the compiler does not make.
fn main() {}
