//! `netvale vm`: prints the arguments that attach a virtual machine.

use netvale_control::types::PortInfo;

use crate::kinds::{self, GuestArguments, GuestMachine, VmSupport, Vmm};
use crate::{CliContext, CliError, out};

/// Print the arguments that attach a virtual machine to a vhost, ptnet or e1000 port.
///
/// For vhost ports the machine's memory must be shared. Without shared memory, QEMU falls back to a device of its own,
/// and the port receives no frames. The output suits the QEMU installed here, with KVM or without; restrictions are
/// printed on standard error.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct VmArgs {
    /// The port as shown by `netvale list`, e.g. vale0:vm1.
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

/// Runs the subcommand.
///
/// # Errors
/// No daemon answers, the port does not exist, or the port is not for a virtual machine.
pub fn run(args: &VmArgs, ctx: &CliContext) -> Result<(), CliError> {
    let port = ctx.daemon()?.ask(|client| client.show(&args.port))?;
    let printed = printed(args, &port, VmSupport::ask())?;
    out::line(format_args!("{}", printed.text))?;
    for note in printed.notes {
        netvale_control::note!("netvale: {note}");
    }
    Ok(())
}

fn printed(args: &VmArgs, port: &PortInfo, installed: VmSupport) -> Result<GuestArguments, CliError> {
    let machine = GuestMachine { vmm: args.vmm, memory: &args.memory, installed };
    port.detail.as_ref().and_then(|detail| kinds::arguments(detail, machine)).unwrap_or_else(|| {
        let what = format!("{} is a {} port: expected a vhost, ptnet or e1000 port", port.name, port.kind);
        Err(CliError::usage(what, kinds::FOR_ANY_MACHINE))
    })
}
