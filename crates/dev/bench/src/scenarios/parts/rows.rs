//! The parts of a path, as tables of prefixes of function names, and of the source files in which functions are.

use std::collections::BTreeMap;

use crate::sys::profile::CodePlace;

/// The part for code that matches no row.
const OTHER: &str = "other";

/// A part, with the texts by which its code is recognized.
struct PathPart {
    name: &'static str,
    words: &'static [&'static str],
}

const fn part(name: &'static str, words: &'static [&'static str]) -> PathPart {
    PathPart { name, words }
}

/// Prefixes of function names, in the kernel and in the C library. The first matching row counts.
#[rustfmt::skip]
const FUNCTIONS: &[PathPart] = &[
    part("buffers", &[
        "alloc_skb", "__alloc_skb", "sock_alloc_send", "sock_wmalloc", "sock_omalloc", "sock_wfree", "__sock_wfree",
        "skb_set_owner_w", "skb_release", "skb_free", "kfree", "__kfree", "sk_skb_reason_drop", "consume_skb",
        "__consume_stateless", "napi_skb_cache", "napi_consume", "__napi_alloc", "build_skb", "__build_skb",
        "xsk_build_skb", "kmalloc", "__kmalloc", "kmem_cache", "__slab", "___slab", "new_slab", "get_from_partial",
        "get_partial", "__memcg_slab", "__memcg_kmem", "obj_cgroup", "refill_obj", "refill_stock", "page_frag",
        "__page_frag", "skb_page_frag", "sk_page_frag", "get_page_from_freelist", "__alloc_pages", "__alloc_frozen",
        "free_unref", "__free_frozen", "memset", "__memset",
    ]),
    part("copy", &[
        "_copy_from", "copy_from", "_copy_to", "copy_to", "__copy", "copy_user", "rep_movs", "memcpy", "__memcpy",
        "memmove", "__mem", "csum_", "skb_copy", "skb_store_bits", "ip_generic_getfrag", "import_", "__check_object",
        "check_heap_object", "__virt_addr_valid", "move_addr_to",
    ]),
    part("driver", &[
        "veth_", "dev_hard_start", "xmit_one", "dev_forward", "__dev_forward", "____dev_forward", "netif_rx",
        "__netif_rx", "enqueue_to_backlog", "process_backlog", "netif_receive", "__netif_receive", "net_rx_action",
        "napi_", "__napi", "gro_", "dev_gro", "eth_type_trans", "ip_rcv", "ip_list_rcv", "ip_sublist_rcv",
        "packet_rcv", "handle_softirqs", "do_softirq", "__do_softirq", "__local_bh", "raise_softirq",
        "__raise_softirq", "skb_scrub", "xdp_", "bpf_",
    ]),
    part("call", &[
        "entry_", "do_syscall", "syscall_", "__x64_sys", "x64_sys_call", "__arm64_sys", "invoke_syscall", "el0",
        "__se_sys", "__do_sys", "__sys_", "___sys_", "____sys_", "sendmsg", "fdget", "__fdget", "fget", "__fget",
        "fput", "sockfd_", "exit_to_user", "send", "__send", "__libc_send",
    ]),
    part("stack", &[
        "udp", "__udp", "ip_", "__ip", "ipv4_", "inet", "sock_", "__sock", "sk_", "__sk", "skb_", "__skb", "dev_",
        "__dev", "netdev_", "netif_", "validate_xmit", "neigh", "__neigh", "fib_", "rt_", "dst_", "nf_", "security_",
        "apparmor", "aa_", "selinux", "packet_", "tpacket", "eth_", "qdisc", "xsk_", "__xsk", "xp_", "lock_sock",
        "release_sock", "arp_", "siphash", "net_",
    ]),
];

/// Parts of source files' paths. With inlined functions, an address has several files; the first row that matches any
/// of these files counts.
const FILES: &[PathPart] = &[
    part("notify", &["core/mem/src/notify.rs", "core/mem/src/calls.rs"]),
    part("sync", &["core/mem/src/appl.rs", "core/mem/src/pipe.rs", "programs/client/src/", "kinds/afxdp/src/"]),
    part("program", &["bench/src/scenarios/traffic.rs", "bench/src/peers/"]),
    part("copy", &["core/mem/src/copy.rs", "core/port/src/ahead.rs"]),
    part("switch", &["core/switch/src/", "core/port/src/", "core/mem/src/", "core/policy/src/"]),
    part("program", &["crates/dev/bench/src/"]),
];

fn part_of(place: &CodePlace) -> &'static str {
    let fits = |row: &&PathPart| {
        let mut words = row.words.iter();
        match &place.files[..] {
            [] => words.any(|word| place.function.starts_with(word)),
            files => words.any(|word| files.iter().any(|file| file.contains(word))),
        }
    };
    let rows = if place.files.is_empty() { FUNCTIONS } else { FILES };
    rows.iter().find(fits).map_or(OTHER, |row| row.name)
}

/// Returns the share of each part in per cent.
pub fn shares(places: &[CodePlace]) -> BTreeMap<&'static str, f64> {
    let mut shares = BTreeMap::new();
    for place in places {
        *shares.entry(part_of(place)).or_insert(0.0) += 100.0 / places.len() as f64;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(function: &str, files: &[&str]) -> CodePlace {
        CodePlace { function: function.into(), files: files.iter().map(|file| (*file).to_owned()).collect() }
    }

    /// Objective: kernel functions belong to their parts, even if functions of other parts have similar prefixes;
    /// unknown functions are reported as such.
    #[test]
    fn kernel() {
        for (function, expected) in [
            ("entry_SYSCALL_64_after_hwframe", "call"),
            ("__sys_sendto", "call"),
            ("__libc_sendto", "call"),
            ("kmem_cache_alloc_node_noprof", "buffers"),
            ("sock_alloc_send_pskb", "buffers"),
            ("__memcg_slab_post_alloc_hook", "buffers"),
            ("_copy_from_iter", "copy"),
            ("ip_generic_getfrag", "copy"),
            ("__memmove_avx512_unaligned_erms", "copy"),
            ("udp_sendmsg", "stack"),
            ("ip_finish_output2", "stack"),
            ("ip_rcv_core", "driver"),
            ("veth_xmit", "driver"),
            ("_raw_spin_lock", "other"),
            ("[unknown]", "other"),
        ] {
            assert_eq!(part_of(&place(function, &[])), expected, "{function}");
        }
    }

    /// Objective: addresses in our programs belong to the part of their inlined functions.
    #[test]
    fn programs() {
        let sender = "/x/crates/dev/bench/src/scenarios/traffic.rs";
        let copy = "/x/crates/core/mem/src/copy.rs";
        let ring = "/x/crates/core/mem/src/ring.rs";
        let places = [
            place("a", &[copy, ring, sender]),
            place("b", &["/x/crates/core/mem/src/appl.rs", sender]),
            place("c", &[copy, "/x/crates/core/port/src/egress.rs"]),
            place("d", &[ring, "/x/crates/core/switch/src/forward.rs"]),
            place("e", &["??"]),
        ];
        let found = places.each_ref().map(part_of);
        assert_eq!(found, ["program", "sync", "copy", "switch", "other"]);
        assert_eq!(shares(&places).get("copy"), Some(&20.0));
    }
}
