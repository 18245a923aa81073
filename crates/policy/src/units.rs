//! Units as iproute2 writes them.
