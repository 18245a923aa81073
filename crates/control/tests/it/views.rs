//! The typed view of a kind's options has the options that the table gives the kind, and no other.

use std::marker::PhantomData;

use netvale_control::options::kind::{self, AsType};
use netvale_control::options::{AttachOption, Kind, OPTIONS, takes};
use netvale_control::types::PortOptions;
use serde_json::{Value, json};

/// What [`views`] found: a kind, an option's key, and whether the view has it.
type Found = (Kind, &'static str, bool);

/// What a view has that does not have an option.
trait Lacks {
    const HAS: bool = false;
}

/// Whether [`OptionsOf`](netvale_control::options::OptionsOf) a kind has an option: where a kind is of the option's
/// trait, `HAS` is the type's own constant, which hides the one of the trait `Lacks`.
macro_rules! views {
    ([$($option:ident)+] $kinds:tt) => {
        /// Every view's options, in the table's order.
        fn views() -> Vec<Found> {
            let mut found = Vec::new();
            $( found.extend(views!(@ $option $kinds)); )+
            found
        }
    };
    (@ $option:ident [$($kind:ident)+]) => {{
        struct View<K>(PhantomData<K>);
        impl<K> Lacks for View<K> {}
        impl<K: takes::$option> View<K> { const HAS: bool = true; }
        [$( (kind::$kind::KIND, stringify!($option), View::<kind::$kind>::HAS) ),+]
    }};
}

views! {
    [name lossless rings slots buf_size extra_bufs huge vnet_hdr no_segments mtu netns repeat speed capture_limit packed no_mergeable no_in_order vector gro host vfio_user
        backend itr client socket_mode socket_user socket_group mac evpn any_remote ageing ttl dscp fragment no_udp_checksum
        info access trunk native vlan_protocol addresses guard max_addresses learning sticky locked isolated flood mcast_flood bcast_flood
        storm_unknown storm_mcast storm_bcast loop_guard mcast_snooping mcast_querier mcast_router mcast_fast_leave rate_in burst_in
        pps_in rate_group rate_out burst_out pps_out queue_out filter_in filter_out link_in link_out]
    [Local Tap Vhost Virtio VirtioPci Ptnet E1000 E1000Pci Netmap Replay Capture Vxlan Null Echo]
}

/// Objective: each kind's view can read exactly the options that the table gives that kind, and no option or kind is
/// missing here.
#[test]
fn views_are_the_tables() {
    let key = |field| if field == "repeat" { "loop" } else { field };
    let found: Vec<Found> = views().into_iter().map(|(kind, field, has)| (kind, key(field), has)).collect();
    let rows = OPTIONS.iter().flat_map(|option| Kind::ALL.map(|kind| (kind, option.key, option.kinds.contains(&kind))));
    assert_eq!(found, rows.collect::<Vec<_>>());
}

/// Objective: a view is only made of options that its kind takes.
#[test]
fn no_view_of_options_of_another_kind() {
    let has = |options: Value| {
        let options: PortOptions = serde_json::from_value(options).unwrap();
        (options.of::<kind::Tap>().is_some(), options.of::<kind::Replay>().is_some())
    };
    assert!(AttachOption::find("speed").is_some_and(|option| option.kinds == [Kind::Replay]));
    assert_eq!(has(json!({"lossless": true})), (true, true));
    assert_eq!(has(json!({"lossless": true, "rings": 2})), (true, false));
    assert_eq!(has(json!({"speed": 0.0})), (false, true));
}
