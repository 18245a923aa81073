//! The PVP test by DPDK release: host and guest both use the DPDK of a newer Debian release. Debian's backports contain
//! the releases of the next Debian.

use super::*;
use crate::peers::newer_dpdk::NewerDpdk;

const PINNED: &[Need] = &[Need::Root("hugepages"), Need::Cpus(2)];
const TRIXIE: &[Need] = &[Need::Found(|| NewerDpdk::find("trixie").map(drop))];
const SID: &[Need] = &[Need::Found(|| NewerDpdk::find("sid").map(drop))];

/// Returns the releases besides the release of the system.
pub fn peers() -> Vec<Contender> {
    let is_here = |case: &Case| PVP.has(case) && case.variant.ends_with(" mergeable");
    contenders! {
        "dpdk-pvp-trixie", "host and guest are testpmd of Debian 13's DPDK (trixie)"; &[PINNED, TRIXIE], is_here,
        |case, cores| both("dpdk-pvp-trixie", "trixie", case, cores);
        "dpdk-pvp-sid", "host and guest are testpmd of the DPDK in Debian's development release (sid)";
        &[PINNED, SID], is_here, |case, cores| both("dpdk-pvp-sid", "sid", case, cores);
    }
}

fn both(who: &str, suite: &str, case: &Case, cores: Cores) -> Result<Session> {
    pvp(who, case, cores, [false, false], Place::new(2, 0)?.of(NewerDpdk::find(suite)?))
}
