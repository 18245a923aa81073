//! Shared memory: regions, rings, CSB and notification.
