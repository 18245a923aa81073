//! A switch in one thread with the sender and the receiver: with and without policies in turn, or with a delay line.

use netvale_port::link::{Link, LinkSettings};
use netvale_switch::{CompiledPolicies, ForwardMemory, Forwarder, Switch};

use super::kinds::Kind;
use super::*;
use crate::scenarios::embedded::Lane;
use crate::stats::median;

/// Number of rounds that are not measured, after each change of policies.
const SETTLE: u32 = 16;
/// Number of measured rounds, which take about half a millisecond.
const COUNTED: u32 = 128;
/// Number of rounds of the delay line between two checks of the clock.
const ROUNDS: u32 = 32;
/// The delay line's settings: the limit is the number of frames that fast senders have in flight during the delay.
const WORDS: &str = "delay 20ms limit 1000000";
/// Memory of the delay line in bytes.
const BYTES: u64 = 256 << 20;
const WHO: &str = "netvale's embedded switch";

/// Measures the additional time per frame with policies. The same rings and buffers are used with and without policies
/// in turn, because different memory would cause larger differences than those to be measured.
pub fn on_top(case: &Case, cores: Cores) -> Result<Session> {
    let kind = Kind::named(&case.variant)?;
    let switch = Switch::new("vale0");
    let mut lane = embedded::pair(case, &switch)?;
    let measuring = move |window| {
        let mut without = Vec::new();
        let mut on_top = Vec::new();
        let round = || {
            let (before, first) = turn(&switch, &mut lane, Kind::None)?;
            let (after, second) = turn(&switch, &mut lane, kind)?;
            without.push(before);
            on_top.push(after - before);
            Ok(first + second)
        };
        let (_, beside) = run_pinned(vec![Job::new(cores.0, round)], window)?;
        lane.stations.books(0).check(WHO)?;
        let middle = |values: &[f64]| median(values).ok_or_else(|| BenchError::NoTraffic(WHO.into()));
        let without = middle(&without)?;
        Ok(Sample::new(middle(&on_top)?, beside).fact("without_policies_ns", format!("{without:.1}")))
    };
    let words = format!("sender, switch and receiver in one thread on CPU {}", cores.0);
    Ok(Session::new(words, case.touches(), measuring).fact("slots", SLOTS))
}

/// Moves frames under the policies `kind`. Returns the nanoseconds per frame, and the number of frames.
fn turn(switch: &Switch, lane: &mut Lane, kind: Kind) -> Result<(f64, u64)> {
    Kind::clear(switch);
    kind.set(switch)?;
    (0..SETTLE).for_each(|_| _ = lane.round());
    let begun = Instant::now();
    let frames: u64 = (0..COUNTED).map(|_| lane.round()).sum();
    Ok((begun.elapsed().as_nanos() as f64 / frames.max(1) as f64, frames))
}

/// Measures frames through a delay line on the sender's port.
pub fn delay(case: &Case, cores: Cores) -> Result<Session> {
    let switch = Switch::new("vale0");
    let Lane { mut stations, forwarder: mut near, .. } = embedded::pair(case, &switch)?;
    let mut far = line(&switch)?;
    let mut work = ForwardMemory::default();
    let own = case.clone();
    let measuring = move |window| {
        let round = || {
            let mut received = 0;
            for _ in 0..ROUNDS {
                // Frames stay in the delay line for longer than the sender needs to fill the receiver's room. Without
                // this call, the sender would stop until they leave it.
                stations.forget_lost();
                stations.send();
                near.pass(&mut work);
                far.pass(&mut work);
                received += stations.receive();
            }
            Ok(received)
        };
        let (done, beside) = run_pinned(vec![Job::new(cores.0, round)], window)?;
        match stations.books(0).wrong {
            0 => Ok(Sample::new(own.rate(total_rate("the delay line", &done)?), beside)),
            frames => Err(BenchError::WrongBytes { who: "the delay line".into(), frames }),
        }
    };
    let words = format!("sender, both ends, switch and receiver in one thread on CPU {}", cores.0);
    Ok(Session::new(words, case.touches(), measuring).fact("slots", SLOTS).fact("link", WORDS))
}

/// Puts a delay line behind the first port of the pair. Returns the forwarder of its far end.
fn line(switch: &Arc<Switch>) -> Result<Forwarder> {
    let impair = Some(WORDS.parse().map_err(|error| failed(&error))?);
    let settings = LinkSettings { impair, rates: Vec::new(), bytes: BYTES, frames: None, seed: 1 };
    let (link, end) = Link::new(settings, 1, None, Arc::default()).map_err(|error| failed(&error))?;
    let far = Forwarder::of_link(Arc::clone(switch), 0, end);
    let policies = CompiledPolicies { link: Some(link), ..CompiledPolicies::default() };
    switch.set_policies(0, Some(Arc::new(policies)), None);
    Kind::None.set(switch)?;
    Ok(far)
}
