//! Measurements common to all contenders with two hosts: a TCP stream, and frames in one direction.

use crate::peers::iperf::Iperf;
use crate::peers::underlay;
use crate::prelude::*;

/// Starts one TCP stream between a station of one host and a station of the other host. Both hosts are stopped between
/// measurements.
pub fn stream(hosts: Parts, stations: [Netns; 2], cores: Cores) -> Result<Session> {
    let pids = hosts.iter().flat_map(|host| host.pids()).collect();
    let iperf = Iperf::start(stations, &underlay::station(1), cores, pids)?;
    let words = format!("the client's host on CPU {}, the server's on CPU {}", cores.0, cores.1);
    iperf.session(words).with_all(hosts).idle()
}

/// Frames in one direction, from a program on one host to a program on the other host.
pub struct OneWay<S, R> {
    /// The name of the switch or tunnel between the programs, for error messages.
    pub who: &'static str,
    /// The processes of both hosts.
    pub hosts: Parts,
    /// Sends frames, and returns how many.
    pub sender: S,
    /// Receives frames, and returns how many. Sets its argument to the number of frames so far that had wrong bytes.
    pub receiver: R,
}

impl<S, R> OneWay<S, R>
where
    S: FnMut() -> Result<u64> + Send + 'static,
    R: FnMut(&mut u64) -> Result<u64> + Send + 'static,
{
    /// Creates a session whose figure is the receiver's rate. If `tells` is true, samples also have the share of lost
    /// frames.
    pub fn session(self, case: &Case, cores: Cores, touched: bool, tells: bool) -> Result<Session> {
        let Self { who, hosts, mut sender, mut receiver } = self;
        let pids: Vec<u32> = hosts.iter().flat_map(|host| host.pids()).collect();
        let own = case.clone();
        let measuring = move |window: Duration| {
            let mut wrong = 0;
            let jobs = vec![Job::new(cores.0, &mut sender), Job::new(cores.1, || receiver(&mut wrong))];
            let (done, beside) = run_pinned_with(jobs, window, &pids, &[])?;
            let (received, lost) = received(&done, who, wrong)?;
            // Programs wait for their own host's switch by design: that is not a disturbance.
            let beside = Disturbance { foreign_percent: beside.foreign_percent, ..Disturbance::default() };
            let sample = Sample::new(own.rate(received), beside);
            Ok(if tells { sample.fact("lost_percent", format!("{lost:.2}")) } else { sample })
        };
        let words = format!("the sender's host on CPU {}, the receiver's on CPU {}", cores.0, cores.1);
        Session::new(words, touched, measuring).with_all(hosts).idle()
    }
}

/// Returns the frames received per second, and the share of sent frames that were not received, in per cent. `wrong` is
/// the number of frames with wrong bytes.
fn received(done: &[Done], who: &str, wrong: u64) -> Result<(f64, f64)> {
    if wrong > 0 {
        return Err(BenchError::WrongBytes { who: who.into(), frames: wrong });
    }
    let [sent, received] = [done.first(), done.last()].map(|one| one.map_or(0.0, Done::rate));
    if received <= 0.0 {
        return Err(BenchError::NoTraffic(who.into()));
    }
    Ok((received, (100.0 * (1.0 - received / sent.max(1.0))).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: rates and losses are computed from the two threads; no frames, and wrong bytes, are errors that name
    /// the contender.
    #[test]
    fn one_way_rates_are_those_of_the_two_threads() {
        let done = |count| Done { count, elapsed: Duration::from_secs(1) };
        let both = received(&[done(200), done(150)], "the tunnel", 0).expect("frames came");
        assert_eq!(both, (150.0, 25.0));
        for (count, wrong) in [(0, 0), (1, 1)] {
            let error = received(&[done(1), done(count)], "the tunnel", wrong).err();
            assert!(error.is_some_and(|error| error.to_string().contains("the tunnel")));
        }
    }
}
