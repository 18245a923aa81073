//! The netvale daemon: switches, workers, attach and control sockets.
