//! The one-way time of single frames across the daemon's switch.
//!
//! While polling, one thread has both ports and measures the time from sync to arrival. While sleeping, two threads
//! play ping-pong, and half a round trip is the one-way time, as for the peers.

use super::*;
use crate::frames::LINE;
use crate::peers::pingpong::{self, Game, Side, empty_histogram};

/// Number of round trips between two checks of the window's end.
const ROUNDS: u32 = 64;
/// Time after which an unanswered frame is lost.
const PATIENCE: Duration = Duration::from_secs(1);
const SLOTS: u32 = 256;
const ONE: Variant = Variant { unit: Unit::Micros, frame_bytes: &[60], batch: &[1], ..Variant::TWO_PORTS };

/// The scenario. In `polling` no thread ever sleeps; in `sleeping` and `sleeping-one-core` every thread sleeps at every
/// hop; in `spin` every thread polls for the spin budget before it sleeps.
pub const SCENARIO: Scenario = Scenario {
    name: "latency",
    about: "one frame at a time across the switch, polling and sleeping; one-way time",
    variants: variants![
        ONE => "polling";
        Variant { spin_us: &[0], ..ONE } => "sleeping", "sleeping-one-core";
        Variant { spin_us: &[0, 5, 10, 20, 50, 100, 200], ..ONE } => "spin"
    ],
    needs: &[TWO],
    start: |case, cores| if case.variant == "polling" { polling(case, cores) } else { sleeping(case, cores) },
};

fn sleeping(case: &Case, Cores(first, second): Cores) -> Result<Session> {
    let far_core = if case.variant == "sleeping-one-core" { first } else { second };
    let spin = Duration::from_micros(u64::from(case.spin_us.unwrap_or(0)));
    let daemon = Daemon::start(None, far_core, &format!("spin_us = {}", spin.as_micros()))?;
    let open = |name: &str| {
        let mut port = daemon.open(name, SLOTS)?;
        port.set_spin(spin);
        Ok(port)
    };
    let (near, far) = ends(open, case.frame_bytes)?;
    let words = format!("one thread each on CPUs {first} and {far_core}, worker on CPU {far_core}");
    let game = Game { who: "netvale", cores: Some(Cores(first, far_core)), processes: vec![daemon.pid()] };
    Ok(Session::new(words, true, pingpong::between(game, near, far)).keeping(daemon))
}

fn polling(case: &Case, cores: Cores) -> Result<Session> {
    let daemon = Daemon::start(None, cores.1, "poll_always = true")?;
    let (mut near, mut far) = ends(|name| daemon.open(name, SLOTS), case.frame_bytes)?;
    let server = daemon.clone();
    let measuring = move |window| {
        let mut times = empty_histogram()?;
        let round = || {
            for _ in 0..ROUNDS {
                let time = one_way(&mut near, &mut far)?;
                times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(u64::from(ROUNDS))
        };
        let (_, disturbance) =
            run_pinned_with(vec![Job::new(cores.0, round)], window, &[server.pid()], &server.threads())?;
        Ok(Sample::of_times(times, 0.5, disturbance))
    };
    let words = format!("application of both ports on CPU {}, worker on CPU {}", cores.0, cores.1);
    Session::new(words, true, measuring).with(&daemon).idle()
}

/// Opens two ports on `vale0`, and exchanges frames from which the switch learns the addresses of both ends.
pub fn ends(open: impl Fn(&str) -> Result<Port>, frame_bytes: u32) -> Result<(End, End)> {
    let end =
        |name: &str, to, from| Ok::<_, BenchError>(End { port: open(name)?, frame: frame(to, from, frame_bytes) });
    let mut near = end("vale0:near", 2, 1)?;
    let mut far = end("vale0:far", 1, 2)?;
    near.send()?;
    far.expect()?;
    far.send()?;
    near.expect()?;
    Ok((near, far))
}

/// A port, with the frame that it sends.
pub struct End {
    port: Port,
    frame: Vec<u8>,
}

impl End {
    /// Takes and reads a frame if one is available. Returns whether it took a frame.
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

/// Sends a frame. Returns the time from before the frame is written until after it was read.
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
