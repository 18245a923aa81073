//! Integration tests of vhost-user devices and drivers.

mod common;
mod frontend;
mod hostile;
mod lent;
mod migrate;
mod pair;
mod succession;
mod succession_forged;

mod with_programs {
    mod dpdk;
    mod ovs;
}
