//! Check: huge pages.

use super::files;
use super::row::CheckRow;
use crate::units;

const CHECK: &str = "huge-pages";

/// Below this size, the memory of ports mostly fits the TLBs of current CPUs.
const LARGE: u64 = 64 << 20;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

/// The kernel's huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HugePages {
    /// Free and total huge pages of 2 MiB; `None` if the kernel does not report them.
    huge: Option<(u64, u64)>,
    /// Setting of transparent huge pages for shared memory, which the memory regions of ports are.
    shmem: Option<String>,
}

/// Checks the ports' memory: `ordinary` bytes in ordinary pages and `huge` bytes in huge pages.
pub fn look(ordinary: u64, huge: u64) -> CheckRow {
    let of = |file: &str| files::number(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}"));
    let shmem = files::read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let shmem = shmem.as_deref().and_then(files::chosen).map(str::to_owned);
    judge(&HugePages { huge: of("free_hugepages").zip(of("nr_hugepages")), shmem }, ordinary, huge)
}

fn judge(pages: &HugePages, ordinary: u64, huge: u64) -> CheckRow {
    if *pages == HugePages::default() {
        return CheckRow::unknown(CHECK, "the kernel has no huge pages, or does not show them");
    }
    let (free, all) = pages.huge.unwrap_or_default();
    let row = CheckRow::ok(CHECK, about(pages, ordinary, huge))
        .figure("free", free)
        .figure("reserved", all)
        .figure("shmem_enabled", pages.shmem.clone())
        .figure("ordinary_bytes", ordinary)
        .figure("huge_bytes", huge);
    let transparent = pages.shmem.as_deref().is_some_and(|set| matches!(set, "always" | "force" | "within_size"));
    let needed = ordinary.div_ceil(HUGE);
    let reserve =
        if free < needed { format!("`sysctl vm.nr_hugepages={}`, then ", all + needed) } else { String::new() };
    row.advise_if(
        ordinary >= LARGE && !transparent,
        "Regions of this size have more ordinary pages than the CPU's translation cache (TLB) holds: copies then wait \
         for page tables.",
        format!("{reserve}attach the ports again, with `netvale attach --huge` (programs: `Options::huge`)"),
    )
}

fn about(pages: &HugePages, ordinary: u64, huge: u64) -> String {
    let mut text = match pages.huge.unwrap_or_default() {
        (_, 0) => "no pages of 2 MiB reserved".to_owned(),
        (free, all) => format!("{free} of {all} pages of 2 MiB free"),
    };
    if let Some(shmem) = &pages.shmem {
        text.push_str(&format!(", transparent ones for shared memory: {shmem}"));
    }
    if ordinary + huge > 0 {
        let [ordinary, huge] = [ordinary, huge].map(units::memory);
        text.push_str(&format!("; ports have {ordinary} in ordinary pages, {huge} in huge ones"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::row::CheckState;
    use super::*;

    fn pages(free: u64, all: u64, shmem: &str) -> HugePages {
        HugePages { huge: Some((free, all)), shmem: Some(shmem.into()) }
    }

    /// Objective: only large regions in ordinary pages yield advice, with the number of pages to reserve.
    #[test]
    fn only_large_regions_in_ordinary_pages_yield_advice() {
        let small = 4 << 20;
        let large = 128 << 20;
        assert_eq!(judge(&pages(0, 0, "never"), small, 0).state, CheckState::Ok);
        let row = judge(&pages(0, 8, "never"), large, 0);
        assert!(row.state == CheckState::Advice && row.what_to_do.contains("vm.nr_hugepages=72"), "{row:?}");
        assert!(!judge(&pages(100, 100, "never"), large, 0).what_to_do.contains("sysctl"));
        assert_eq!(judge(&pages(0, 0, "always"), large, 0).state, CheckState::Ok);
        assert_eq!(judge(&pages(0, 0, "never"), 0, large).state, CheckState::Ok);
        assert_eq!(judge(&HugePages::default(), 0, 0).state, CheckState::Unknown);
    }
}
