//! Client library: attach to a netvale port, move whole batches per sync.
