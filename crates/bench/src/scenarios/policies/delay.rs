//! Frames through a delay line, all in one thread: the sender, both ends of the line, the switch, the receiver.

use std::sync::Arc;
use std::time::Duration;

use netvale_mem::appl::AppRing;
use netvale_port::link::{Link, LinkSettings};
use netvale_switch::{Forwarder, Policies, Switch, Work};

use super::kinds::Kind;
use super::on_top::PAIR;
use crate::case::Case;
use crate::contender::{Sample, Session};
use crate::error::{BenchError, Result};
use crate::scenarios::embedded;
use crate::scenarios::own::failed;
use crate::scenarios::stations::{Plan, Stations};
use crate::scenarios::traffic::{SLOTS, Touch};
use crate::sys::threads::{Job, run_pinned, total_rate};

/// What the line is like: as many frames as fast senders have under way in that time.
const WORDS: &str = "delay 20ms limit 1000000";
const BYTES: u64 = 256 << 20;
/// Rounds between two looks at the clock.
const ROUNDS: u32 = 32;

/// Two ports, the first of which sends through the line.
pub struct Delay {
    case: Case,
    core: usize,
    stations: Stations<AppRing, AppRing>,
    near: Forwarder,
    far: Forwarder,
    work: Work,
}

impl Delay {
    /// A switch with two ports, private to this process.
    ///
    /// # Errors
    /// No memory.
    pub fn start(case: &Case, core: usize) -> Result<Self> {
        let (plan, switch) = (Plan::of(case), Switch::new("vale0"));
        let (near, tx, _) = embedded::port(&switch, "from", SLOTS, 0)?;
        let (_, _, rx) = embedded::port(&switch, "to", SLOTS, 0)?;
        let impair = Some(WORDS.parse().map_err(|error| failed(&error))?);
        let settings = LinkSettings { impair, rates: Vec::new(), bytes: BYTES, frames: None, seed: 1 };
        let (link, end) = Link::new(settings, 1, None, Arc::default()).map_err(|error| failed(&error))?;
        let far = Forwarder::of_link(Arc::clone(&switch), PAIR.ports.0, end);
        let policies = Policies { link: Some(link), ..Policies::default() };
        switch.set_policies(PAIR.ports.0, Some(Arc::new(policies)), None);
        Kind::None.set(&switch, PAIR)?;
        let stations = Stations::new(plan, case, Touch::of(case), vec![tx], vec![rx]);
        Ok(Self { case: case.clone(), core, stations, near, far, work: Work::default() })
    }
}

impl Session for Delay {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let Self { stations, near, far, work, .. } = self;
        let round = || {
            let mut received = 0;
            for _ in 0..ROUNDS {
                // Frames are under way for longer than it takes to send all that the receiver has room for.
                stations.forget_lost();
                stations.send();
                near.pass(work);
                far.pass(work);
                received += stations.receive();
            }
            Ok(received)
        };
        let (done, beside) = run_pinned(vec![Job::new(self.core, round)], window)?;
        let books = self.stations.books(0);
        if books.wrong > 0 {
            return Err(BenchError::WrongBytes { who: "the delay line".into(), frames: books.wrong });
        }
        Ok(Sample::new(self.case.rate(total_rate("the delay line", &done)?), beside))
    }

    fn cores(&self) -> String {
        format!("sender, both ends, switch and receiver in one thread on {}", self.core)
    }

    fn touched(&self) -> bool {
        self.case.touches()
    }

    fn context(&self) -> Vec<(String, String)> {
        vec![("slots".into(), SLOTS.to_string()), ("link".into(), WORDS.into())]
    }
}
