//! Searches for the longest packet that passes on a path: probes packet sizes, and chooses the next size by the
//! response.

use std::io;

/// The response to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResponse {
    /// The packet and its reply arrived.
    Reply,
    /// A router reports the maximum size in bytes.
    TooBig(u32),
    /// There was no response.
    Silence,
}

/// The result of a search for the longest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestPacket {
    /// Size of the longest packet that passes, in bytes.
    pub mtu: u32,
    /// Whether longer packets vanish without an error.
    pub is_silent: bool,
}

/// Searches for the longest packet that passes, from `known` bytes down to `least`, a size that is known to pass. `ask`
/// probes a size. The search tries the sizes that routers report; if routers are silent, it bisects the range.
pub fn search(
    known: u32,
    least: u32,
    mut ask: impl FnMut(u32) -> io::Result<ProbeResponse>,
) -> io::Result<LongestPacket> {
    let mut high = known.max(least);
    loop {
        match ask(high)? {
            ProbeResponse::Reply => return Ok(LongestPacket { mtu: high, is_silent: false }),
            // Each probed size is smaller than the previous one, so the loop ends.
            ProbeResponse::TooBig(mtu) if (least..high).contains(&mtu) => high = mtu,
            ProbeResponse::TooBig(_) | ProbeResponse::Silence => break,
        }
    }
    let mut low = least;
    while high.saturating_sub(low) > 1 {
        let middle = low + (high - low) / 2;
        match ask(middle)? {
            ProbeResponse::Reply => low = middle,
            ProbeResponse::TooBig(_) | ProbeResponse::Silence => high = middle,
        }
    }
    Ok(LongestPacket { mtu: low, is_silent: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a search on a path of hops. Each hop has an MTU, and reports packets that are too big if its flag is
    /// true. Returns the result and the number of probes.
    fn path(known: u32, hops: &[(u32, bool)]) -> (LongestPacket, usize) {
        let mut asked = 0;
        let found = search(known, 100, |size| {
            asked += 1;
            Ok(match hops.iter().find(|(mtu, _)| size > *mtu) {
                None => ProbeResponse::Reply,
                Some((mtu, true)) => ProbeResponse::TooBig(*mtu),
                Some((_, false)) => ProbeResponse::Silence,
            })
        });
        (found.unwrap(), asked)
    }

    /// Objective: the search needs one packet if the host knows the path's MTU, and one more packet for each router
    /// that reports a smaller MTU.
    #[test]
    fn one_packet_is_enough_for_a_known_path() {
        assert_eq!(path(1500, &[]), (LongestPacket { mtu: 1500, is_silent: false }, 1));
        assert_eq!(path(1500, &[(1400, true), (1300, true)]), (LongestPacket { mtu: 1300, is_silent: false }, 3));
    }

    /// Objective: a limit above which packets vanish is found to the byte, even beyond a router that reports its MTU.
    #[test]
    fn silent_limits_are_found_to_the_byte() {
        for mtu in 100..1500 {
            let (found, asked) = path(1500, &[(mtu, false)]);
            assert_eq!(found, LongestPacket { mtu, is_silent: true });
            assert!(asked <= 12, "{asked} packets");
        }
        assert_eq!(path(9000, &[(1500, true), (1300, false)]).0, LongestPacket { mtu: 1300, is_silent: true });
    }

    /// Objective: routers that report impossible sizes (zero, more than the sent size, less than a size that passes)
    /// neither mislead the search nor make it loop.
    #[test]
    fn impossible_sizes_do_not_mislead_the_search() {
        for said in [0, 99, 1500, 9000, u32::MAX] {
            let ask = |size| Ok(if size > 1200 { ProbeResponse::TooBig(said) } else { ProbeResponse::Reply });
            assert_eq!(search(1500, 100, ask).unwrap(), LongestPacket { mtu: 1200, is_silent: true }, "{said}");
        }
        assert_eq!(search(60, 100, |_| Ok(ProbeResponse::Reply)).unwrap().mtu, 100);
    }
}
