//! Tests of policies with frames.

mod guard;
mod impair;
mod snoop;

mod with_programs {
    mod bpf;
}
