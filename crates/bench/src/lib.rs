//! Measurement harness: scenarios, peers, statistics and reports.
