//! The longest packet that passes, found by probing: each size has a response.

use std::io;

/// The response to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Both the packet and its reply arrived.
    Reply,
    /// A router reports the bytes that it accepts.
    TooBig(u32),
    /// No response.
    Silence,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Bytes of the longest packet that passes.
    pub mtu: u32,
    /// Whether longer packets vanish without an error.
    pub is_silent: bool,
}

/// Searches from `known` bytes down to `least`, which pass. Sizes reported by routers are followed; with silent routers
/// the search halves the range.
pub fn search(known: u32, least: u32, mut ask: impl FnMut(u32) -> io::Result<Response>) -> io::Result<Longest> {
    let mut high = known.max(least);
    loop {
        match ask(high)? {
            Response::Reply => return Ok(Longest { mtu: high, is_silent: false }),
            // Each step is smaller, so this ends.
            Response::TooBig(mtu) if (least..high).contains(&mtu) => high = mtu,
            Response::TooBig(_) | Response::Silence => break,
        }
    }
    let mut low = least;
    while high.saturating_sub(low) > 1 {
        let middle = low + (high - low) / 2;
        match ask(middle)? {
            Response::Reply => low = middle,
            Response::TooBig(_) | Response::Silence => high = middle,
        }
    }
    Ok(Longest { mtu: low, is_silent: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of hops with an MTU each, silent or not. Returns the result and the number of probes.
    fn path(known: u32, hops: &[(u32, bool)]) -> (Longest, usize) {
        let mut asked = 0;
        let found = search(known, 100, |size| {
            asked += 1;
            Ok(match hops.iter().find(|(mtu, _)| size > *mtu) {
                None => Response::Reply,
                Some((mtu, true)) => Response::TooBig(*mtu),
                Some((_, false)) => Response::Silence,
            })
        });
        (found.unwrap(), asked)
    }

    /// Objective: one packet is enough if the host knows the path, plus one for each router that reports its size.
    #[test]
    fn said() {
        assert_eq!(path(1500, &[]), (Longest { mtu: 1500, is_silent: false }, 1));
        assert_eq!(path(1500, &[(1400, true), (1300, true)]), (Longest { mtu: 1300, is_silent: false }, 3));
    }

    /// Objective: each size at which packets vanish is found to the byte, also after a router that reports.
    #[test]
    fn silent() {
        for mtu in 100..1500 {
            let (found, asked) = path(1500, &[(mtu, false)]);
            assert_eq!(found, Longest { mtu, is_silent: true });
            assert!(asked <= 12, "{asked} packets");
        }
        assert_eq!(path(9000, &[(1500, true), (1300, false)]).0, Longest { mtu: 1300, is_silent: true });
    }

    /// Objective: routers that report impossible sizes (zero, more than was sent, less than passes) neither mislead the
    /// search nor make it loop.
    #[test]
    fn nonsense() {
        for said in [0, 99, 1500, 9000, u32::MAX] {
            let ask = |size| Ok(if size > 1200 { Response::TooBig(said) } else { Response::Reply });
            assert_eq!(search(1500, 100, ask).unwrap(), Longest { mtu: 1200, is_silent: true }, "{said}");
        }
        assert_eq!(search(60, 100, |_| Ok(Response::Reply)).unwrap().mtu, 100);
    }
}
