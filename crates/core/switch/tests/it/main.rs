//! Tests of switches. The test process operates both sides of the ports' rings.

mod common;
mod holding;
mod hostile;
mod joint;
mod model;
mod multicast;
mod offload;
mod payload_filters;
mod policies;
mod queues;
mod steps;
mod thousands;
mod timing;
mod traced;
mod traced_drops;
mod workers;
