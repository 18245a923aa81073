//! `netvale vm`: prints the arguments that attach a virtual machine.

use std::process::ExitCode;

use netvale_control::types::{PtnetInfo, VhostInfo};

use crate::{CliError, Ctx, out};

/// Print the arguments that attach a virtual machine to a vhost, ptnet or e1000 port.
///
/// For vhost ports the machine's memory must be shared: with memory that is not, QEMU falls back to a device of its own, and the port never sees a frame.
/// Examples:
///
///   netvale attach vale0 vhost:/run/netvale/vm1.sock
///   qemu-system-x86_64 -m 2G … $(netvale vm vale0:vm1)
///   netvale vm vale0:vm1 --vmm libvirt
#[derive(Debug, clap::Args)]
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
    if let Some(ptnet) = &port.ptnet {
        out::line(format_args!("{}", ptnet_arguments(args.vmm, ptnet, &args.memory)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(e1000) = &port.e1000 {
        let other = "attach it to a vhost port: netvale attach vale0 vhost:/run/netvale/vm1.sock";
        out::line(format_args!("{}", vfio_user_arguments(args.vmm, &[&e1000.path], &args.memory, other)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(vhost) = port.vhost else {
        return Err(CliError::usage(
            format!("{} is a {} port, and a virtual machine takes a vhost, ptnet or e1000 port", port.name, port.kind),
            "netvale attach vale0 vhost:/run/netvale/vm1.sock",
        ));
    };
    let reconnect = reconnect(installed_qemu().unwrap_or(RECONNECT_MS));
    out::line(format_args!("{}", arguments(args.vmm, &vhost, &args.memory, reconnect)))?;
    Ok(ExitCode::SUCCESS)
}

/// The first QEMU that counts the time to the next attempt in milliseconds.
const RECONNECT_MS: (u32, u32) = (9, 2);

/// Version of the QEMU that would be started here.
fn installed_qemu() -> Option<(u32, u32)> {
    let output = std::process::Command::new("qemu-system-x86_64").arg("--version").output().ok()?;
    version(&String::from_utf8_lossy(&output.stdout))
}

/// Parses a line like `QEMU emulator version 7.2.17 (Debian …)`.
fn version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_once("version ")?.1.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// With this, a daemon that is restarted only costs a pause.
fn reconnect(qemu: (u32, u32)) -> &'static str {
    if qemu < RECONNECT_MS { ",reconnect=1" } else { ",reconnect-ms=1000" }
}

fn arguments(vmm: Vmm, v: &VhostInfo, memory: &str, reconnect: &str) -> String {
    match vmm {
        Vmm::Qemu => qemu(v, memory, reconnect),
        Vmm::CloudHypervisor => {
            let mode = if v.client { ",vhost_mode=server" } else { "" };
            let (path, mac, queues) = (&v.path, v.mac, 2 * v.pairs);
            format!(
                "--memory size={memory},shared=on --net vhost_user=true,socket={path}{mode},mac={mac},num_queues={queues},queue_size=1024"
            )
        }
        Vmm::Libvirt => libvirt(v, memory),
        Vmm::Uml => format!("virtio_uml.device={}:1", v.path),
    }
}

fn qemu(v: &VhostInfo, memory: &str, reconnect: &str) -> String {
    let (path, mac, pairs) = (&v.path, v.mac, v.pairs);
    let meet = if v.client { ",server=on,wait=off" } else { reconnect };
    let queues = if pairs > 1 { format!(",queues={pairs}") } else { String::new() };
    let mq = if pairs > 1 { format!(",mq=on,vectors={}", 2 * pairs + 2) } else { String::new() };
    format!(
        "-object memory-backend-memfd,id=mem,size={memory},share=on -machine memory-backend=mem -m {memory} \
         -chardev socket,id=nv0,path={path}{meet} -netdev vhost-user,id=nv0,chardev=nv0{queues} \
         -device virtio-net-pci,netdev=nv0,mac={mac},rx_queue_size=1024,host_mtu={}{mq}",
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

fn ptnet_arguments(vmm: Vmm, p: &PtnetInfo, memory: &str) -> Result<String, CliError> {
    let (path, vectors) = (&p.path, p.vectors);
    if let Some(second) = &p.memory {
        return vfio_user_arguments(vmm, &[second, path], memory, "omit --vfio-user where the port is attached");
    }
    match vmm {
        Vmm::Qemu => {
            Ok(format!("-chardev socket,id=nv0,path={path} -device ivshmem-doorbell,chardev=nv0,vectors={vectors}"))
        }
        Vmm::Libvirt => Ok(format!(
            "<!-- in <devices> -->
<shmem name='netvale'>
  <model type='ivshmem-doorbell'/>
  <server path='{path}'/>
  <msi vectors='{vectors}'/>
</shmem>"
        )),
        Vmm::CloudHypervisor | Vmm::Uml => Err(CliError::usage(
            "a ptnet port takes QEMU's ivshmem-doorbell, which this program does not have".to_owned(),
            "attach it to a vhost port: netvale attach vale0 vhost:/run/netvale/vm1.sock",
        )),
    }
}

/// Devices by vfio-user: the machine's memory must be shared, as for vhost ports.
fn vfio_user_arguments(vmm: Vmm, sockets: &[&str], memory: &str, otherwise: &str) -> Result<String, CliError> {
    let all = |of: &dyn Fn(&str) -> String| sockets.iter().map(|path| of(path)).collect::<Vec<_>>().join(" ");
    match vmm {
        Vmm::Qemu => {
            let device = |path: &str| {
                format!(r#"-device {{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}}}}"#)
            };
            Ok(format!(
                "-object memory-backend-memfd,id=mem,size={memory},share=on -machine memory-backend=mem -m {memory} {}",
                all(&device)
            ))
        }
        Vmm::CloudHypervisor => {
            let device = |path: &str| format!("--user-device socket={path}");
            Ok(format!("--memory size={memory},shared=on {}", all(&device)))
        }
        Vmm::Libvirt | Vmm::Uml => {
            Err(CliError::usage("a vfio-user port takes QEMU from 10.1 on, or cloud-hypervisor".to_owned(), otherwise))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pairs: u32, client: bool) -> VhostInfo {
        let mac = "02:00:00:00:00:01".parse().expect("an address");
        VhostInfo { path: "/run/s".into(), client, pairs, mac, mtu: 1500 }
    }

    /// Objective: what a program needs is there: shared memory, the socket, who listens, queues.
    #[test]
    fn what_is_needed() {
        let text = arguments(Vmm::Qemu, &info(1, false), "2G", reconnect((7, 2)));
        for part in ["size=2G,share=on", "path=/run/s,reconnect=1", "mac=02:00:00:00:00:01"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("queues="), "{text}");
        let text = arguments(Vmm::Qemu, &info(4, true), "2G", "");
        for part in ["queues=4", "mq=on,vectors=10", "server=on,wait=off"] {
            assert!(text.contains(part), "{text}");
        }
        let text = arguments(Vmm::CloudHypervisor, &info(2, false), "1G", "");
        assert!(text.contains("shared=on") && text.contains("num_queues=4"), "{text}");
        let text = arguments(Vmm::Libvirt, &info(2, false), "1G", "");
        assert!(text.contains("mode='client'><reconnect") && text.contains("queues='2'"), "{text}");
        assert!(text.contains("</source>") && !text.contains("mtu"), "{text}");
        let text = arguments(Vmm::Libvirt, &VhostInfo { mtu: 9000, ..info(1, false) }, "1G", "");
        assert!(text.contains("mtu 9000") && !text.contains("<mtu"), "{text}");
        assert_eq!(arguments(Vmm::Uml, &info(1, false), "", ""), "virtio_uml.device=/run/s:1");
    }

    /// Objective: a ptnet device has all its vectors.
    #[test]
    fn ptnet() {
        let info = PtnetInfo { path: "/run/s".into(), vectors: 5, ..PtnetInfo::default() };
        let text = |vmm| ptnet_arguments(vmm, &info, "1G").ok();
        assert!(text(Vmm::Qemu).is_some_and(|t| t.contains("path=/run/s") && t.ends_with("vectors=5")));
        assert!(text(Vmm::Libvirt).is_some_and(|t| t.contains("<msi vectors='5'/>")));
        assert_eq!(text(Vmm::Uml), None);
        let info = PtnetInfo { memory: Some("/run/s.mem".into()), ..info };
        let text = |vmm| ptnet_arguments(vmm, &info, "1G").ok();
        assert!(text(Vmm::Qemu).is_some_and(|t| t.matches("vfio-user-pci").count() == 2 && t.contains("share=on")));
        assert!(text(Vmm::CloudHypervisor).is_some_and(|t| t.contains("socket=/run/s.mem")));
    }

    /// Objective: the option that the installed QEMU knows.
    #[test]
    fn versions() {
        assert_eq!(version("QEMU emulator version 7.2.17 (Debian 1:7.2+dfsg-7+deb12u13)"), Some((7, 2)));
        assert_eq!(version("QEMU emulator version 11.1.3"), Some((11, 1)));
        assert_eq!(version("none"), None);
        assert_eq!(reconnect((11, 1)), ",reconnect-ms=1000");
        assert_eq!(reconnect((9, 1)), ",reconnect=1");
    }
}
