//! Multicast snooping.
