//! The scripts of `tests/policies`: features of ports.

netvale_system_tests::scripts! {
    "policies": vlan security guard filters transparency restart ports; measuring: rates links multicast netem tlem
}
