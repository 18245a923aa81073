//! Manual pages of topics: netvale.toml(5) and netvale(7).

use std::fmt::Write as _;

use netvale_control::options::OPTIONS;
use netvale_daemon::config::SETTINGS;

use super::roff::{escaped, section};
use super::shared;

fn title(name: &str, number: u8, about: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let name_section = section("NAME", &format!("{name} - {about}"));
    format!(".TH {} {number} \"\" \"netvale {version}\"\n{name_section}", name.to_uppercase())
}

/// A key or an option: its name and meaning.
fn entry(name: &str, shape: &str, doc: &str, default: &str) -> String {
    let default = if default.is_empty() { String::new() } else { format!(" Default: {default}.") };
    let name = escaped(name);
    let text = escaped(&format!("{doc}{default}"));
    format!(".TP\n\\fB{name}\\fR ({})\n{text}\n", escaped(shape))
}

/// The configuration file, from the tables of settings and options.
pub fn configuration() -> String {
    let mut text = title("netvale.toml", 5, "configuration of the netvale daemon");
    text += &section("DESCRIPTION", DESCRIPTION);
    for (table, about) in TABLES {
        let _ = writeln!(text, ".SH \"{}\"\n{about}", if table.is_empty() { "KEYS" } else { table });
        for setting in SETTINGS.iter().filter(|setting| setting.table == table.trim_matches(['[', ']'])) {
            text += &entry(setting.name, &setting.shape.to_string(), setting.doc(), &setting.default());
        }
    }
    text += ".SH \"[[port]]\"\nA port that the daemon attaches when it starts, as netvale\\-attach(1) does.\n";
    text += &entry("switch", "a text", "The switch, such as vale0.", "");
    text += &entry("port", "a text", "What to attach, such as tap:nv0.", "");
    for option in OPTIONS {
        text += &entry(option.key, &option.shape.to_string(), option.doc(), option.default);
    }
    text += &section("EXAMPLES", EXAMPLE);
    text += &shared::files();
    text + &section("SEE ALSO", "netvale-up(1), netvale-apply(1), netvale-export(1), netvale-attach(1), netvale(7)")
}

const DESCRIPTION: &str = "\
The file is in TOML. Every key is optional; options of netvale-up(1) override the file. An unknown key is an
error, and the message gives its line. 'systemctl reload netvale', SIGHUP and netvale-apply(1) apply the file to
a running daemon, as a whole or not at all. 'netvale up --schema' prints the file's JSON Schema.
";

const TABLES: [(&str, &str); 4] = [
    ("", "These keys are before the first table."),
    ("[sockets]", "Owner, group and mode of the sockets that the daemon creates itself."),
    ("[switch]", "Settings of all switches."),
    ("[quota]", "Limits of each user except root and the daemon's own user."),
];

const EXAMPLE: &str = r#"
  workers = 2
  allow_dirs = ["/srv/captures"]

  [switch]
  shared = ["vale0"]

  [[port]]
  switch = "vale0"
  port = "tap:nv0"
  mtu = 9000
"#;

/// Overview of netvale and its terms.
pub fn overview() -> String {
    let mut text = title("netvale", 7, "virtual switches and packet I/O of netmap, in user space");
    text += &section("DESCRIPTION", OVERVIEW);
    text += &section("NAMES", NAMES);
    text += &section("EXAMPLES", EXAMPLES);
    text += &shared::files();
    text + &section("SEE ALSO", "netvale(1), netvale.toml(5), netvale-attach(1), netvale-run(1), netvale-doctor(1)")
}

const OVERVIEW: &str = "\
The daemon, netvale-up(1), has virtual switches. Programs, containers, virtual machines, network interfaces and
other hosts are connected to their ports. A frame is copied once, straight into the receiver's buffers.

A switch learns the port of each address, as a bridge does. A program's port consists of rings in shared memory,
with netmap's layout; netvale-run(1) runs unmodified programs for netmap and libpcap on ports.

The packaged daemon runs as the user netvale, and serves root and the members of the group netvale. Any user can
run a daemon of their own, which that user's commands then use.
";

const NAMES: &str = "
  vale0               a switch
  vale0:web           a port on it; programs open it by this name
  vale0:web-1         one of its rings
  vale0:web/rt        a monitor: copies of frames that it receives (r) and sends (t)
  vale0:web{1, }1     the two ends of a pipe
  netmap:eth0         a network interface
  netmap:eth0^        its host rings, which lead to the host's network stack

netvale-attach(1) lists the kinds of ports by the prefix before the colon, such as netmap: and vhost:.
";

const EXAMPLES: &str = "
  netvale attach vale0 tap:nv0             connect the host to the switch
  netvale attach vale0 vhost:/run/netvale/vm1.sock
  qemu-system-x86_64 ... $(netvale vm vale0:vm1)
  netvale list                             list switches and ports
  netvale trace vale0 --drops              print why frames are dropped
  netvale run -- tcpdump -ni vale0:vm1/rt
";
