//! A bad link.
