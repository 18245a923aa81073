//! Tests of policies with frames: anti-spoofing, impaired links, multicast snooping and filters.

mod guard;
mod impair;
mod snoop;

mod with_programs {
    mod bpf;
}
