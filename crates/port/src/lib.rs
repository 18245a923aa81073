//! The batched ingress and egress traits and the ports that need nothing but memory.
