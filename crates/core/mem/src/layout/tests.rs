//! Layouts of valid and invalid sizes.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(crate::test_config())]
    /// Objective: no two objects overlap and all objects are inside the region, whatever the sizes.
    #[test]
    fn objects_are_disjoint(rings in 1u32..40, slots in 2u32..3000, buf in 1u32..40, pipes in 0u32..9) {
        let l = Layout::new(RegionSizes::for_port(rings, slots, buf * 64, pipes, 7)).unwrap();
        let s = l.sizes;
        prop_assert!(l.if_at(s.ifs.num) <= l.ring_pool);
        prop_assert!(l.ring_at(s.rings.num) <= l.buf_pool);
        prop_assert!(l.buf_at(s.bufs.num) <= l.csb_atok);
        prop_assert!(l.atok_at(l.csb_entries) <= l.csb_ktoa);
        prop_assert!(l.ktoa_at(l.csb_entries) <= l.total);
        prop_assert!(l.max_slots() >= slots);
        prop_assert!(l.max_port_rings() >= rings + 2);
        prop_assert_eq!(l.total % PAGE, 0);
    }
}

proptest! {
    #![proptest_config(crate::test_config())]
    /// Objective: a device's memory is a power of two, begins with a page for its header, and has at least as many
    /// buffers as requested.
    #[test]
    fn device_memory_is_a_power_of_two(rings in 1u32..64, slots in 2u32..3000, buf in 1u32..40) {
        let asked = RegionSizes::for_port(rings, slots, buf * 64, 0, 7);
        let l = Layout::device(asked).unwrap();
        prop_assert!(l.total.is_power_of_two());
        prop_assert!(l.csb_atok == PAGE && l.atok_at(rings) <= l.csb_ktoa && l.ktoa_at(rings) <= l.if_pool);
        prop_assert!(l.if_at(l.sizes.ifs.num) <= l.ring_pool && l.ring_at(rings) <= l.buf_pool);
        prop_assert!(l.sizes.bufs.num >= asked.bufs.num && l.buf_at(l.sizes.bufs.num) <= l.total);
        prop_assert!(l.buf_at(l.sizes.bufs.num + 1) > l.total);
        prop_assert_eq!(l.if_pool % PAGE, 0);
    }
}

/// Objective: sizes that the ABI cannot express are refused, with the name of the pool.
#[test]
fn bad_sizes_are_refused() {
    let ok = RegionSizes::for_port(2, 8, 2112, 0, 0);
    let with = |f: &dyn Fn(&mut RegionSizes)| {
        let mut s = ok;
        f(&mut s);
        Layout::new(s)
    };
    assert!(Layout::new(ok).is_ok());
    assert_eq!(with(&|s| s.bufs.size = 100), Err(LayoutError::BufSize(100)));
    assert_eq!(with(&|s| s.bufs.size = 131_072), Err(LayoutError::BufSize(131_072)));
    assert_eq!(with(&|s| s.bufs.num = 2), Err(LayoutError::Pool("buffer")));
    assert_eq!(with(&|s| s.rings.size = 64), Err(LayoutError::Pool("ring")));
    assert_eq!(with(&|s| s.ifs.num = 0), Err(LayoutError::Pool("netmap_if")));
    assert!(matches!(with(&|s| s.bufs = PoolSize { num: u32::MAX, size: 65_536 }), Err(LayoutError::TooLarge(_))));
}

/// Sizes at which an overflow could occur, and the smallest legal sizes.
const EDGES: [u32; 12] = [0, 1, 2, 3, 64, 288, 4096, 65_536, 1 << 20, 1 << 31, u32::MAX / 64 * 64, u32::MAX];

/// Whether the parts of a layout do not overlap and are within the region, computed in 128-bit numbers, which cannot
/// overflow here.
fn is_sound(l: &Layout) -> bool {
    let pool = |at: u64, p: PoolSize| u128::from(at) + u128::from(p.num) * u128::from(p.size);
    let csb = |at: u64| u128::from(at) + 64 * u128::from(l.csb_entries);
    let mut parts = [
        (u128::from(l.if_pool), pool(l.if_pool, l.sizes.ifs)),
        (u128::from(l.ring_pool), pool(l.ring_pool, l.sizes.rings)),
        (u128::from(l.buf_pool), pool(l.buf_pool, l.sizes.bufs)),
        (u128::from(l.csb_atok), csb(l.csb_atok)),
        (u128::from(l.csb_ktoa), csb(l.csb_ktoa)),
    ];
    parts.sort_unstable();
    let disjoint = parts.windows(2).all(|w| w[0].1 <= w[1].0);
    disjoint && parts[4].1 <= u128::from(l.total) && l.total <= MAX_REGION && l.total.is_multiple_of(PAGE)
}

/// Objective: for each combination of boundary sizes, each kind of region is refused, or laid out without overlaps
/// within its size; an overflow would end this test.
#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn boundary_sizes_never_overflow() {
    let rooms = [0, PAGE, PAGE + 1, 1 << 30, MAX_REGION, MAX_REGION + PAGE, u64::MAX - PAGE + 1, u64::MAX];
    let mut laid = 0u64;
    let mut refused = 0u64;
    let mut all = |result: Result<Layout, LayoutError>| match result {
        Ok(l) => {
            assert!(is_sound(&l), "{l:?}");
            laid += 1;
        }
        Err(_) => refused += 1,
    };
    for k in 0..EDGES.len().pow(5) {
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|digit| EDGES[k / EDGES.len().pow(digit) % EDGES.len()]);
        for size in [64, 2112, 65_536] {
            let pool = |num, size| PoolSize { num, size };
            let sizes = RegionSizes { ifs: pool(a, b), rings: pool(c, d), bufs: pool(e, size) };
            all(Layout::new(sizes));
            all(Layout::device(sizes));
            all(Layout::bar(sizes));
            all(Layout::in_room(sizes, rooms[k % rooms.len()]));
        }
    }
    assert!(laid > 1000 && refused > laid, "{laid} laid out, {refused} refused");
}

/// Objective: no number of rings, slots, pipes and extra buffers causes an overflow; offsets of objects that do not
/// exist are beyond the end of their pools.
#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn no_overflow_for_ports() {
    for k in 0..EDGES.len().pow(4) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|digit| EDGES[k / EDGES.len().pow(digit) % EDGES.len()]);
        let Ok(l) = Layout::new(RegionSizes::for_port(a, b, 2112, c, d)) else { continue };
        assert!(is_sound(&l), "{l:?}");
        for i in [l.sizes.bufs.num, 1 << 31, u32::MAX] {
            assert!(
                l.buf_at(i) >= l.buf_at(l.sizes.bufs.num) && l.ring_at(i) >= l.ring_pool && l.if_at(i) >= l.if_pool
            );
            assert!(l.atok_at(i) >= l.csb_atok && l.ktoa_at(i) >= l.csb_ktoa);
        }
        assert!(l.max_slots() >= b.min(16_384) && l.max_port_rings() >= a.min(1024));
    }
}
