//! VLANs.
