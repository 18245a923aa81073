//! The program's help, version and banner.

use super::RELEASE;

/// Returns the help text.
pub(super) fn text() -> &'static str {
    "\
Usage: vde_switch [OPTIONS]
A netvale switch for VDE plugs. Option names begin with one dash or two.

The switch:
  -s, --sock FOLDER      folder of the sockets [/var/run/vde.ctl, else /tmp/vde.ctl]
  -n, --numports N       number of ports, counting the unused port 0 [32]
  -x, --hub              pass every frame to all ports
  -F, --fstp             watch for loops
  -t, --tap TAP          attach a TAP, or several, separated by commas
  -m, --mode MODE        permission bits of the socket, in octal [0600]
      --dirmode MODE     permission bits of the folder [like the socket's]
  -g, --group GROUP      group of the socket and the folder
      --macaddr, --priority, --hashsize    have no effect, but are shown

Management:
  -M, --mgmt PATH        management socket
      --mgmtmode MODE    permission bits of the management socket [0600]
      --mgmtgroup GROUP  group of the management socket
  -f, --rcfile FILE      file of commands to run at start
                         [~/.vde2/vde_switch.rc, else /etc/vde2/vde_switch.rc]
      --nostdin          ignore standard input, and keep running when it ends

The process:
  -d, --daemon           run in the background
  -p, --pidfile FILE     write the process ID to a file
  -h, --help             print this
  -v, --version          print the version
"
}

/// Returns the text for `--version`.
pub(super) fn version() -> String {
    format!("VDE {RELEASE}\nnetvale {}, called vde_switch\n", env!("CARGO_PKG_VERSION"))
}

/// Returns the banner that begins a session. Clients parse VDE's release from it.
pub(super) fn banner() -> String {
    format!("VDE switch V.{RELEASE}\n(netvale {}, called vde_switch)\n", env!("CARGO_PKG_VERSION"))
}
