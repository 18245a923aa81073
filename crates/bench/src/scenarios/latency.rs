//! One frame at a time across the daemon's switch: how long it takes one way.
//!
//! While polling, one thread has both ports and takes the time from sync to arrival. Sleeping, two threads play
//! ping-pong and half a round trip is the one-way time, as in the peers.

use std::time::{Duration, Instant};

use netvale::{Interest, Port};

use super::own::{Daemon, FORWARDING, failed};
use super::traffic::{LINE, frame};
use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::threads_named;
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::peers::pingpong::{self, Side, empty_histogram};
use crate::scenarios::{Scenario, Variant};
use crate::sys::threads::{Job, run_pinned_with};

/// Round trips between two looks at the clock of the window.
const ROUNDS: u32 = 64;
/// After this long without an answer a frame is lost.
const PATIENCE: Duration = Duration::from_secs(1);
const SLOTS: u32 = 256;
const ONE: Variant = Variant { unit: Unit::Micros, frame_bytes: &[60], batch: &[1], ..Variant::TWO_PORTS };

/// The scenario. `polling` never sleeps; `sleeping` and `sleeping-one-core` always do, at every hop; in `spin`
/// everybody polls for the spin budget first.
pub const SCENARIO: Scenario = Scenario {
    name: "latency",
    about: "one frame at a time across the switch, polling and sleeping; one-way time",
    variants: &[
        Variant { name: "polling", ..ONE },
        Variant { name: "sleeping", spin_us: &[0], ..ONE },
        Variant { name: "sleeping-one-core", spin_us: &[0], ..ONE },
        Variant { name: "spin", spin_us: &[0, 5, 10, 20, 50, 100, 200], ..ONE },
    ],
    ours: Some(|| Box::new(Latency)),
};

/// Netvale's switch.
pub struct Latency;

impl Contender for Latency {
    fn name(&self) -> &str {
        "netvale"
    }

    fn about(&self) -> &str {
        "two local ports on a VALE switch, one worker"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == SCENARIO.name
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        env.two_cores().map(|_| ())
    }

    fn start(&self, case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (first, second) = env.two_cores()?;
        if case.variant == "polling" {
            let daemon = Daemon::start(second, "poll_always = true")?;
            let (near, far) = ends(|name| daemon.open(name, SLOTS), case.frame_bytes)?;
            daemon.worker.freeze()?;
            return Ok(Box::new(Polling { near, far, cores: (first, second), daemon }));
        }
        let far_core = if case.variant == "sleeping-one-core" { first } else { second };
        let spin = Duration::from_micros(u64::from(case.spin_us.unwrap_or(0)));
        let daemon = Daemon::start(far_core, &format!("spin_us = {}", spin.as_micros()))?;
        let open = |name: &str| {
            let mut port = daemon.open(name, SLOTS)?;
            port.set_spin(spin);
            Ok(port)
        };
        let (near, far) = ends(open, case.frame_bytes)?;
        Ok(Box::new(Sleeping { near, far, cores: (first, far_core), daemon }))
    }
}

/// Two ports on `vale0`, opened by their names, that know each other's address.
///
/// # Errors
/// Those of `open`, or no frame passes.
pub fn ends(open: impl Fn(&str) -> Result<Port>, frame_bytes: u32) -> Result<(End, End)> {
    let end =
        |name: &str, to, from| Ok::<_, BenchError>(End { port: open(name)?, frame: frame(to, from, frame_bytes) });
    let (mut near, mut far) = (end("vale0:near", 2, 1)?, end("vale0:far", 1, 2)?);
    near.send()?;
    far.expect()?;
    far.send()?;
    near.expect()?;
    Ok((near, far))
}

/// A port and the frame it sends.
pub struct End {
    port: Port,
    frame: Vec<u8>,
}

impl End {
    /// Takes a frame if there is one, and reads it.
    fn take(&mut self) -> bool {
        let ring = &mut self.port.rx()[0];
        let _ = ring.sync();
        let mut line = [0u8; LINE];
        let taken = ring.recv(&mut line).is_some();
        if taken {
            std::hint::black_box(&line);
            let _ = ring.sync();
        }
        taken
    }

    fn expect(&mut self) -> Result<()> {
        if self.wait()? { Ok(()) } else { Err(BenchError::NoTraffic("netvale's switch".into())) }
    }
}

impl Side for End {
    fn send(&mut self) -> Result<()> {
        let ring = &mut self.port.tx()[0];
        if !ring.send(&self.frame) {
            return Err(BenchError::NoTraffic("netvale's switch".into()));
        }
        ring.sync();
        Ok(())
    }

    fn wait(&mut self) -> Result<bool> {
        self.port.wait(Interest::Rx, Some(PATIENCE)).map_err(|error| failed(&error))?;
        Ok(self.take())
    }
}

struct Sleeping {
    near: End,
    far: End,
    cores: (usize, usize),
    daemon: Daemon,
}

impl Session for Sleeping {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let processes = [self.daemon.worker.pid()];
        pingpong::play("netvale", &mut self.near, &mut self.far, Some(self.cores), &processes, window)
    }

    fn cores(&self) -> String {
        format!("one thread each on {} and {}, worker on {}", self.cores.0, self.cores.1, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}

struct Polling {
    near: End,
    far: End,
    cores: (usize, usize),
    daemon: Daemon,
}

impl Session for Polling {
    fn resume(&mut self) -> Result<()> {
        self.daemon.worker.thaw()
    }

    fn pause(&mut self) -> Result<()> {
        self.daemon.worker.freeze()
    }

    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let mut times = empty_histogram()?;
        let (near, far, histogram) = (&mut self.near, &mut self.far, &mut times);
        let job = Job::new(self.cores.0, move || {
            for _ in 0..ROUNDS {
                let time = one_way(near, far)?;
                histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(u64::from(ROUNDS))
        });
        let pid = self.daemon.worker.pid();
        let workers = threads_named(pid, &[FORWARDING]);
        let (_, disturbance) = run_pinned_with(vec![job], window, &[pid], &workers)?;
        let value = times.value_at_quantile(0.5) as f64 / 1000.0;
        Ok(Sample { value, disturbance, latencies: Some(times), cpu_percent: None })
    }

    fn cores(&self) -> String {
        format!("both ports' application on {}, worker on {}", self.cores.0, self.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}

/// From before the frame is written to after it was read.
fn one_way(from: &mut End, to: &mut End) -> Result<Duration> {
    let start = Instant::now();
    from.send()?;
    let mut looks = 0u32;
    while !to.take() {
        std::hint::spin_loop();
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 16) {
            interrupt::check()?;
            if start.elapsed() > PATIENCE {
                return Err(BenchError::NoTraffic("netvale's switch".into()));
            }
        }
    }
    Ok(start.elapsed())
}
