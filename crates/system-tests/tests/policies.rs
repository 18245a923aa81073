//! The scripts of `tests/policies`: features of ports.

netvale_system_tests::scripts! {
    "policies": vlan security guard multicast rates filters links netem tlem transparency restart
}
