//! TAP devices as switch ports: the host stack.
