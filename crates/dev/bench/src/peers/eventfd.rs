//! A bare eventfd hand-off between two sleeping threads: the lower bound for any design that sleeps.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::peers::pingpong::{self, Game, Side};
use crate::prelude::*;

/// Returns the peers: on two cores, an inter-processor interrupt wakes the other thread; on one core, a context switch
/// suffices.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "eventfd", "bare eventfd between two sleeping threads on two cores; one way";
        &[TWO], |case| case.is_crowded("ping") || case.sleeps_across() == Some(true),
        |case, cores| start("eventfd", case, cores);
        "eventfd-one-core", "bare eventfd between two sleeping threads on one core; one way";
        &[ONE], |case| case.sleeps_across() == Some(false),
        |case, cores| start("eventfd-one-core", case, Cores(cores.0, cores.0));
    }
}

fn start(who: &'static str, case: &Case, cores: Cores) -> Result<Session> {
    let cores = case.foreign.is_none().then_some(cores);
    let ping = event()?;
    let pong = event()?;
    let clone = |event: &OwnedFd| event.try_clone().map_err(BenchError::io("duplicating an eventfd"));
    let near = Hand { out: clone(&ping)?, back: clone(&pong)? };
    let words = match cores {
        Some(Cores(near, far)) => format!("one thread each on CPUs {near} and {far}"),
        None => "two threads, not pinned".into(),
    };
    let game = Game { who, cores, processes: Vec::new() };
    let session = Session::new(words, false, pingpong::between(game, near, Hand { out: pong, back: ping }));
    Ok(session.with(&Rc::new(ThisProcess)))
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
