//! The program's help, version and banner.

use super::RELEASE;

/// The help text.
pub(super) fn text() -> &'static str {
    "\
Usage: vde_switch [OPTIONS]
A switch for plugs of VDE, by netvale. Names of options have one dash or two.

The switch:
  -s, --sock FOLDER      folder of its sockets [/var/run/vde.ctl, else /tmp/vde.ctl]
  -n, --numports N       ports, with the unused number 0 [32]
  -x, --hub              pass every frame to all ports
  -F, --fstp             watch for loops
  -t, --tap TAP          attach a TAP; several with commas
  -m, --mode MODE        permission bits of the socket, in octal [0600]
      --dirmode MODE     permission bits of the folder [as the socket's]
  -g, --group GROUP      group of both
      --macaddr, --priority, --hashsize    are only shown

Management:
  -M, --mgmt PATH        management socket
      --mgmtmode MODE    its permission bits [0600]
      --mgmtgroup GROUP  its group
  -f, --rcfile FILE      commands to begin with
                         [~/.vde2/vde_switch.rc, else /etc/vde2/vde_switch.rc]
      --nostdin          do not read commands from standard input, whose end ends the switch

The process:
  -d, --daemon           run in the background
  -p, --pidfile FILE     write the number of the process
  -h, --help             print this
  -v, --version          print the version
"
}

/// The text of `--version`.
pub(super) fn version() -> String {
    format!("VDE {RELEASE}\nnetvale {}, called vde_switch\n", env!("CARGO_PKG_VERSION"))
}

/// The banner at the start of a session. Clients parse VDE's release out of it.
pub(super) fn banner() -> String {
    format!("VDE switch V.{RELEASE}\n(netvale {}, called vde_switch)\n", env!("CARGO_PKG_VERSION"))
}
