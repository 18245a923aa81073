//! A bare eventfd hand-off between two sleeping threads: the least that any design that sleeps can cost.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::case::Case;
use crate::contender::{Contender, Env, Sample, Session};
use crate::error::{BenchError, Result, Skip};
use crate::peers::pingpong::{self, Cores, Side};
use crate::{crowd, pin};

/// The peer, by where its two threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eventfd {
    /// On two cores: a wake-up by inter-processor interrupt.
    AcrossCores,
    /// On one core: a context switch.
    OneCore,
}

impl Contender for Eventfd {
    fn name(&self) -> &str {
        match self {
            Self::AcrossCores => "eventfd",
            Self::OneCore => "eventfd-one-core",
        }
    }

    fn about(&self) -> &str {
        match self {
            Self::AcrossCores => "bare eventfd between two sleeping threads on two cores; one way",
            Self::OneCore => "bare eventfd between two sleeping threads on one core; one way",
        }
    }

    fn fits(&self, case: &Case) -> bool {
        let crowded = *self == Self::AcrossCores && case.is_crowded("ping");
        crowded || case.sleeps_across() == Some(*self == Self::AcrossCores)
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        pin::need(if *self == Self::AcrossCores { 2 } else { 1 }, &env.cores)
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let cores = if case.foreign.is_some() { None } else { Some(placed(env, *self == Self::AcrossCores)?) };
        let (ping, pong) = (event()?, event()?);
        let clone = |event: &OwnedFd| event.try_clone().map_err(BenchError::io("duplicating an eventfd"));
        let near = Hand { out: clone(&ping)?, back: clone(&pong)? };
        let hands = Hands { name: self.name().to_owned(), near, far: Hand { out: pong, back: ping }, cores };
        crowd::beside(case, Box::new(hands))
    }
}

/// The two threads' CPUs.
///
/// # Errors
/// [`Skip::TooFewCpus`].
pub fn placed(env: &Env, across: bool) -> std::result::Result<(usize, usize), Skip> {
    let first = *env.cores.first().ok_or(Skip::TooFewCpus { needed: 1, given: 0 })?;
    if across { env.two_cores() } else { Ok((first, first)) }
}

fn event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).map_err(BenchError::io("creating an eventfd"))
}

struct Hand {
    out: OwnedFd,
    back: OwnedFd,
}

impl Side for Hand {
    fn send(&mut self) -> Result<()> {
        write(&self.out, &1u64.to_ne_bytes()).map(drop).map_err(BenchError::io("writing an eventfd"))
    }

    fn wait(&mut self) -> Result<bool> {
        match read(&self.back, &mut [0u8; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(BenchError::io("reading an eventfd")(error)),
        }
    }
}

struct Hands {
    name: String,
    near: Hand,
    far: Hand,
    cores: Cores,
}

impl Session for Hands {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        pingpong::play(&self.name, &mut self.near, &mut self.far, self.cores, &[], window)
    }

    fn cores(&self) -> String {
        match self.cores {
            Some((near, far)) => format!("one thread each on {near} and {far}"),
            None => "two threads, not pinned".into(),
        }
    }

    fn touched(&self) -> bool {
        false
    }

    fn processes(&self) -> Vec<u32> {
        vec![std::process::id()]
    }
}
