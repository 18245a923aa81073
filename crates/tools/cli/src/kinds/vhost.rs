//! Arguments for vhost-user devices.

use netvale_control::types::VhostInfo;

use super::{GuestArguments, GuestMachine, VmSupport, Vmm};

/// The reason why a guest's device gets no MSI-X vectors, or why the guest must not use them.
const CRASHES: &str = "without KVM, QEMU before 8.0 crashes when a guest uses a vhost-user device's MSI-X vectors";

/// Returns the arguments that attach a vhost-user port to a virtual machine.
pub(super) fn arguments(v: &VhostInfo, machine: GuestMachine<'_>) -> GuestArguments {
    let GuestMachine { vmm, memory, installed } = machine;
    let crashes = installed.crashes_with_vectors();
    let note = |then: &str| if crashes { vec![format!("{CRASHES}: {then}")] } else { Vec::new() };
    match vmm {
        Vmm::Qemu => {
            GuestArguments { text: qemu(v, memory, installed), notes: note("vectors=0 makes QEMU use none of them") }
        }
        Vmm::CloudHypervisor => {
            let mode = if v.client { ",vhost_mode=server" } else { "" };
            let path = &v.path;
            let mac = v.mac;
            let queues = 2 * v.pairs;
            let net = format!("vhost_user=true,socket={path}{mode},mac={mac},num_queues={queues},queue_size=1024");
            format!("--memory size={memory},shared=on --net {net}").into()
        }
        Vmm::Libvirt => {
            let notes = note("give the guest's kernel the option pci=nomsi, unless the domain's type is kvm");
            GuestArguments { text: libvirt(v, memory), notes }
        }
        Vmm::Uml => format!("virtio_uml.device={}:1", v.path).into(),
    }
}

fn qemu(v: &VhostInfo, memory: &str, installed: VmSupport) -> String {
    let path = &v.path;
    let mac = v.mac;
    let pairs = v.pairs;
    let meet = if v.client { ",server=on,wait=off" } else { installed.reconnect() };
    let queues = if pairs > 1 { format!(",queues={pairs}") } else { String::new() };
    let mq = if pairs > 1 { ",mq=on" } else { "" };
    let vectors = if installed.crashes_with_vectors() {
        ",vectors=0".to_owned()
    } else if pairs > 1 {
        format!(",vectors={}", 2 * pairs + 2)
    } else {
        String::new()
    };
    format!(
        "-object memory-backend-memfd,id=mem,size={memory},share=on -machine memory-backend=mem -m {memory} \
         -chardev socket,id=nv0,path={path}{meet} -netdev vhost-user,id=nv0,chardev=nv0{queues} \
         -device virtio-net-pci,netdev=nv0,mac={mac},rx_queue_size=1024,host_mtu={}{mq}{vectors}",
        v.mtu
    )
}

/// Default MTU of a guest's interface.
const ORDINARY_MTU: u32 = 1500;

fn libvirt(v: &VhostInfo, memory: &str) -> String {
    let path = &v.path;
    let mac = v.mac;
    let pairs = v.pairs;
    // libvirt would try to set the MTU of an interface on the host, which this kind of port does not have, and would
    // fail. The guest sets its own MTU instead.
    let mtu = if v.mtu == ORDINARY_MTU {
        String::new()
    } else {
        format!("\n<!-- in the guest: ip link set eth0 mtu {} -->", v.mtu)
    };
    let mode = if v.client { "server" } else { "client" };
    let reconnect = if v.client { "/>" } else { "><reconnect enabled='yes' timeout='1'/></source>" };
    let driver =
        if pairs > 1 { format!("queues='{pairs}' rx_queue_size='1024'") } else { "rx_queue_size='1024'".into() };
    format!(
        "<!-- memory: {memory} -->
<memoryBacking>
  <source type='memfd'/>
  <access mode='shared'/>
</memoryBacking>
<!-- in <devices> -->
<interface type='vhostuser'>
  <mac address='{mac}'/>
  <source type='unix' path='{path}' mode='{mode}'{reconnect}
  <model type='virtio'/>
  <driver {driver}/>
</interface>{mtu}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::installed::sample;
    use super::*;

    fn machine(vmm: Vmm, memory: &str, installed: VmSupport) -> GuestMachine<'_> {
        GuestMachine { vmm, memory, installed }
    }

    fn info(pairs: u32, client: bool) -> VhostInfo {
        let mac = "02:00:00:00:00:01".parse().expect("an address");
        VhostInfo { path: "/run/s".into(), client, pairs, mac, mtu: 1500 }
    }

    /// Objective: the arguments contain all that is necessary: shared memory, the socket, the listening side, queues.
    #[test]
    fn the_arguments_contain_everything_needed() {
        let arguments =
            |vmm, v: &VhostInfo, memory| super::arguments(v, machine(vmm, memory, sample((7, 2), true))).text;
        let text = arguments(Vmm::Qemu, &info(1, false), "2G");
        for part in ["size=2G,share=on", "path=/run/s,reconnect=1", "mac=02:00:00:00:00:01"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("queues=") && !text.contains("vectors="), "{text}");
        let text = arguments(Vmm::Qemu, &info(4, true), "2G");
        for part in ["queues=4", "mq=on,vectors=10", "server=on,wait=off"] {
            assert!(text.contains(part), "{text}");
        }
        let text = arguments(Vmm::CloudHypervisor, &info(2, false), "1G");
        assert!(text.contains("shared=on") && text.contains("num_queues=4"), "{text}");
        let text = arguments(Vmm::Libvirt, &info(2, false), "1G");
        assert!(text.contains("mode='client'><reconnect") && text.contains("queues='2'"), "{text}");
        assert!(text.contains("</source>") && !text.contains("mtu"), "{text}");
        let text = arguments(Vmm::Libvirt, &VhostInfo { mtu: 9000, ..info(1, false) }, "1G");
        assert!(text.contains("mtu 9000") && !text.contains("<mtu"), "{text}");
        assert_eq!(arguments(Vmm::Uml, &info(1, false), ""), "virtio_uml.device=/run/s:1");
    }

    /// Objective: an old QEMU without KVM gets a device without vectors, for any number of queues, and a note for its
    /// owner. For the same QEMU, libvirt guests get a note, too. In all other cases, there is no note.
    #[test]
    fn an_old_qemu_without_kvm_gets_no_vectors() {
        for pairs in [1, 4] {
            let arguments =
                |vmm, version, kvm| super::arguments(&info(pairs, false), machine(vmm, "1G", sample(version, kvm)));
            let old = arguments(Vmm::Qemu, (7, 2), false);
            assert!(old.text.ends_with(",vectors=0") && old.text.matches("vectors").count() == 1, "{old:?}");
            assert!(old.notes[0].contains("before 8.0"), "{old:?}");
            let old = arguments(Vmm::Libvirt, (7, 2), false);
            assert!(old.notes[0].contains("pci=nomsi"), "{old:?}");
            for (version, kvm) in [((7, 2), true), ((8, 0), false)] {
                let other = arguments(Vmm::Qemu, version, kvm);
                assert!(!other.text.contains("vectors=0") && other.notes.is_empty(), "{other:?}");
            }
            assert_eq!(arguments(Vmm::CloudHypervisor, (7, 2), false).notes, Vec::<String>::new());
        }
    }
}
