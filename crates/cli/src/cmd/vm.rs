//! `netvale vm`: prints the arguments that attach a virtual machine.

mod installed;

use std::process::ExitCode;

use netvale_control::types::{PortInfo, PtnetInfo, VhostInfo};

use self::installed::Installed;
use crate::{CliError, Ctx, out};

/// Print the arguments that attach a virtual machine to a vhost, ptnet or e1000 port.
///
/// For vhost ports the machine's memory must be shared: with memory that is not, QEMU falls back to a device of its
/// own, and the port never sees a frame. What is printed is what the QEMU that is installed here can run, with KVM or
/// without; what it cannot is said on standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The port, as `netvale list` shows it, e.g. vale0:vm1.
    pub port: String,

    /// The program that runs the virtual machine.
    #[arg(long, value_enum, default_value_t)]
    pub vmm: Vmm,

    /// The machine's memory, as in QEMU's -m.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: String,
}

const EXAMPLES: &str = "\
Examples:
  netvale attach vale0 vhost:/run/netvale/vm1.sock
  qemu-system-x86_64 -m 2G … $(netvale vm vale0:vm1)
  netvale vm vale0:vm1 --vmm libvirt
";

/// Programs that run virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Vmm {
    /// QEMU's command line.
    #[default]
    Qemu,
    /// cloud-hypervisor's command line.
    CloudHypervisor,
    /// The elements of a libvirt domain.
    Libvirt,
    /// User-Mode Linux's command line.
    Uml,
}

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, there is no such port, or it is not one for a virtual machine.
pub fn run(args: &Args, ctx: &Ctx) -> Result<ExitCode, CliError> {
    let port = ctx.daemon()?.ask(|client| client.show(&args.port))?;
    let printed = printed(args, &port, Installed::ask())?;
    out::line(format_args!("{}", printed.text))?;
    for note in printed.notes {
        netvale_control::note!("netvale: {note}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What attaches a guest, and what its owner should know besides.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    text: String,
    notes: Vec<String>,
}

impl From<String> for Printed {
    fn from(text: String) -> Printed {
        Printed { text, notes: Vec::new() }
    }
}

fn printed(args: &Args, port: &PortInfo, installed: Installed) -> Result<Printed, CliError> {
    if let Some(ptnet) = &port.ptnet {
        return ptnet_arguments(args.vmm, ptnet, &args.memory, installed);
    }
    if let Some(e1000) = &port.e1000 {
        let other = "attach it to a vhost port: netvale attach vale0 vhost:/run/netvale/vm1.sock";
        return vfio_user_arguments(args.vmm, &[&e1000.path], &args.memory, other, installed);
    }
    let Some(vhost) = &port.vhost else {
        return Err(CliError::usage(
            format!("{} is a {} port, and a virtual machine takes a vhost, ptnet or e1000 port", port.name, port.kind),
            "netvale attach vale0 vhost:/run/netvale/vm1.sock",
        ));
    };
    Ok(vhost_arguments(args.vmm, vhost, &args.memory, installed))
}

/// Why the guest's device has no vectors, or must not be used with them.
const CRASHES: &str = "without KVM, QEMU before 8.0 crashes when a guest uses a vhost-user device's MSI-X vectors";

fn vhost_arguments(vmm: Vmm, v: &VhostInfo, memory: &str, installed: Installed) -> Printed {
    let crashes = installed.crashes_with_vectors();
    let note = |then: &str| if crashes { vec![format!("{CRASHES}: {then}")] } else { Vec::new() };
    match vmm {
        Vmm::Qemu => Printed { text: qemu(v, memory, installed), notes: note("vectors=0 says that it has none") },
        Vmm::CloudHypervisor => {
            let mode = if v.client { ",vhost_mode=server" } else { "" };
            let (path, mac, queues) = (&v.path, v.mac, 2 * v.pairs);
            let net = format!("vhost_user=true,socket={path}{mode},mac={mac},num_queues={queues},queue_size=1024");
            format!("--memory size={memory},shared=on --net {net}").into()
        }
        Vmm::Libvirt => {
            let notes = note("give the guest's kernel the option pci=nomsi, unless the domain's type is kvm");
            Printed { text: libvirt(v, memory), notes }
        }
        Vmm::Uml => format!("virtio_uml.device={}:1", v.path).into(),
    }
}

fn qemu(v: &VhostInfo, memory: &str, installed: Installed) -> String {
    let (path, mac, pairs) = (&v.path, v.mac, v.pairs);
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

/// What a guest's interface has unless it is told otherwise.
const ORDINARY_MTU: u32 = 1500;

fn libvirt(v: &VhostInfo, memory: &str) -> String {
    let (path, mac, pairs) = (&v.path, v.mac, v.pairs);
    // libvirt sets the MTU of the host's interface, which this kind does not have, and fails; the guest sets its own.
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

fn ptnet_arguments(vmm: Vmm, p: &PtnetInfo, memory: &str, installed: Installed) -> Result<Printed, CliError> {
    let (path, vectors) = (&p.path, p.vectors);
    if let Some(second) = &p.memory {
        let other = "omit --vfio-user where the port is attached";
        return vfio_user_arguments(vmm, &[second, path], memory, other, installed);
    }
    match vmm {
        Vmm::Qemu => {
            let device = format!("ivshmem-doorbell,chardev=nv0,vectors={vectors}");
            Ok(format!("-chardev socket,id=nv0,path={path} -device {device}").into())
        }
        Vmm::Libvirt => Ok(format!(
            "<!-- in <devices> -->
<shmem name='netvale'>
  <model type='ivshmem-doorbell'/>
  <server path='{path}'/>
  <msi vectors='{vectors}'/>
</shmem>"
        )
        .into()),
        Vmm::CloudHypervisor | Vmm::Uml => Err(CliError::usage(
            "a ptnet port takes QEMU's ivshmem-doorbell, which this program does not have".to_owned(),
            "attach it to a vhost port: netvale attach vale0 vhost:/run/netvale/vm1.sock",
        )),
    }
}

/// Devices by vfio-user: the machine's memory must be shared, as for vhost ports.
fn vfio_user_arguments(
    vmm: Vmm,
    sockets: &[&str],
    memory: &str,
    otherwise: &str,
    installed: Installed,
) -> Result<Printed, CliError> {
    let all = |of: &dyn Fn(&str) -> String| sockets.iter().map(|path| of(path)).collect::<Vec<_>>().join(" ");
    match vmm {
        Vmm::Qemu => {
            let device = |path: &str| {
                format!(r#"-device {{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}}}}"#)
            };
            let shared = format!("-object memory-backend-memfd,id=mem,size={memory},share=on");
            let text = format!("{shared} -machine memory-backend=mem -m {memory} {}", all(&device));
            Ok(Printed { text, notes: installed.lacks_vfio_user().into_iter().collect() })
        }
        Vmm::CloudHypervisor => {
            let device = |path: &str| format!("--user-device socket={path}");
            Ok(format!("--memory size={memory},shared=on {}", all(&device)).into())
        }
        Vmm::Libvirt | Vmm::Uml => {
            Err(CliError::usage("a vfio-user port takes QEMU from 10.1 on, or cloud-hypervisor".to_owned(), otherwise))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::installed::sample;
    use super::*;

    fn info(pairs: u32, client: bool) -> VhostInfo {
        let mac = "02:00:00:00:00:01".parse().expect("an address");
        VhostInfo { path: "/run/s".into(), client, pairs, mac, mtu: 1500 }
    }

    /// Objective: what a program needs is there: shared memory, the socket, who listens, queues.
    #[test]
    fn what_is_needed() {
        let arguments = |vmm, v: &VhostInfo, memory| vhost_arguments(vmm, v, memory, sample((7, 2), true)).text;
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

    /// Objective: an old QEMU without KVM gets a device without vectors, whatever its queues, and its owner is told;
    /// one that is managed by libvirt is told what its guest needs. Nobody else is told anything.
    #[test]
    fn old_without_kvm() {
        for pairs in [1, 4] {
            let arguments = |vmm, version, kvm| vhost_arguments(vmm, &info(pairs, false), "1G", sample(version, kvm));
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

    /// Objective: a ptnet device has all its vectors; by vfio-user, a QEMU that does not know that is named.
    #[test]
    fn ptnet() {
        let info = PtnetInfo { path: "/run/s".into(), vectors: 5, ..PtnetInfo::default() };
        let printed = |vmm, info: &PtnetInfo, version| ptnet_arguments(vmm, info, "1G", sample(version, false)).ok();
        let text = |vmm, info: &PtnetInfo| printed(vmm, info, (7, 2)).map(|printed| printed.text);
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.contains("path=/run/s") && t.ends_with("vectors=5")));
        assert!(text(Vmm::Libvirt, &info).is_some_and(|t| t.contains("<msi vectors='5'/>")));
        assert_eq!(text(Vmm::Uml, &info), None);
        let info = PtnetInfo { memory: Some("/run/s.mem".into()), ..info };
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.matches("vfio-user-pci").count() == 2));
        assert!(text(Vmm::Qemu, &info).is_some_and(|t| t.contains("share=on")));
        assert!(text(Vmm::CloudHypervisor, &info).is_some_and(|t| t.contains("socket=/run/s.mem")));
        let notes = |version| printed(Vmm::Qemu, &info, version).map(|printed| printed.notes.len());
        assert_eq!((notes((7, 2)), notes((10, 1))), (Some(1), Some(0)));
    }
}
