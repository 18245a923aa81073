//! Filters: classic BPF.
