//! Checks of addresses.
