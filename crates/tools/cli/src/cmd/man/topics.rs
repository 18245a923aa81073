//! Pages of topics rather than commands, netvale.toml(5) and netvale(7), and the sections that commands' pages share.

use std::fmt::Write as _;

use netvale_control::options::OPTIONS;
use netvale_daemon::config::SETTINGS;

use super::roff::{escaped, section};

fn title(name: &str, number: u8, about: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let name_section = section("NAME", &format!("{name} - {about}"));
    format!(".TH {} {number} \"\" \"netvale {version}\"\n{name_section}", name.to_uppercase())
}

/// Formats the entry of a key or an option: name, type, meaning and default.
fn entry(name: &str, shape: &str, doc: &str, default: &str) -> String {
    let default = if default.is_empty() { String::new() } else { format!(" Default: {default}.") };
    let name = escaped(name);
    let text = escaped(&format!("{doc}{default}"));
    format!(".TP\n\\fB{name}\\fR ({})\n{text}\n", escaped(shape))
}

/// Returns the page of the configuration file, made from the tables of settings and options.
pub fn configuration() -> String {
    let mut text = title("netvale.toml", 5, "configuration of the netvale daemon");
    text += &section("DESCRIPTION", DESCRIPTION);
    for (table, about) in TABLES {
        let _ = writeln!(text, ".SH \"{}\"\n{about}", if table.is_empty() { "KEYS" } else { table });
        for setting in SETTINGS.iter().filter(|setting| setting.table == table.trim_matches(['[', ']'])) {
            text += &entry(setting.name, &setting.shape.to_string(), setting.doc(), &setting.default());
        }
    }
    text += ".SH \"[[port]]\"\nA port that the daemon attaches at its start, as netvale\\-attach(1) does.\n";
    text += &entry("switch", "a text", "The switch, such as vale0.", "");
    text += &entry("port", "a text", "The port to attach, such as tap:nv0.", "");
    for option in OPTIONS {
        text += &entry(option.key, &option.shape.to_string(), option.doc(), option.default);
    }
    text += &section("EXAMPLES", EXAMPLE);
    text += &files();
    text + &section("SEE ALSO", "netvale-up(1), netvale-apply(1), netvale-export(1), netvale-attach(1), netvale(7)")
}

const DESCRIPTION: &str = "\
The file is in TOML. All keys are optional; options of netvale-up(1) override them. An unknown key is an error
that names its line. 'systemctl reload netvale', a SIGHUP, or netvale-apply(1) make a running daemon match the
file, completely or not at all. 'netvale up --schema' prints a JSON Schema of the file.
";

const TABLES: [(&str, &str); 4] = [
    ("", "Before the first table."),
    ("[sockets]", "Who may connect to the sockets that the daemon makes itself."),
    ("[switch]", "Settings of all switches."),
    ("[quota]", "Limits for each user, except root and the daemon's own user."),
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

/// Returns the page with an overview of netvale and its terms.
pub fn overview() -> String {
    let mut text = title("netvale", 7, "virtual switches and packet I/O of netmap, in user space");
    text += &section("DESCRIPTION", OVERVIEW);
    text += &section("NAMES", NAMES);
    text += &section("EXAMPLES", EXAMPLES);
    text += &files();
    text + &section("SEE ALSO", "netvale(1), netvale.toml(5), netvale-attach(1), netvale-run(1), netvale-doctor(1)")
}

const OVERVIEW: &str = "\
One daemon, netvale-up(1), has switches. Programs, containers, virtual machines, network interfaces and other
hosts are ports on them. A frame is copied once, straight into its receiver's buffers.

A switch learns which addresses are behind which port, as a bridge does. A port is a set of rings of slots in
shared memory, as in netmap; netvale-run(1) runs unmodified netmap and libpcap programs on them.

The daemon of the packages runs as the user netvale, and serves root and the members of the group netvale. Any
user can have a daemon of their own. Commands use the user's own daemon if there is one.
";

const NAMES: &str = "
  vale0               a switch
  vale0:web           a port on it; programs open it by this name
  vale0:web-1         one of its rings
  vale0:web/rt        a copy of what it receives (r) and sends (t)
  vale0:web{1, }1     the two ends of a pipe
  netmap:eth0         a network interface
  netmap:eth0^        its host rings: the system's own network stack

netvale-attach(1) lists the kinds of ports by the prefix of their names, such as netmap: and vhost:.
";

const EXAMPLES: &str = "
  netvale attach vale0 tap:nv0             connects the host to the switch
  netvale attach vale0 vhost:/run/netvale/vm1.sock
  qemu-system-x86_64 ... $(netvale vm vale0:vm1)
  netvale list                             lists switches and ports
  netvale trace vale0 --drops              why frames are dropped
  netvale run -- tcpdump -ni vale0:vm1/rt
";

const ENVIRONMENT: &str = "
  NETVALE_RUN_DIR   folder of the daemon's sockets
  XDG_RUNTIME_DIR   parent folder of an ordinary user's netvale folder, with the sockets of their own daemon
";

const FILES: &str = "
  /run/netvale/control.sock, attach.sock   the sockets of the system's daemon
  /etc/netvale.toml                        its configuration, netvale.toml(5)
  /usr/share/doc/netvale/guide/            the guide
  /usr/share/doc/netvale/reference/        the reference
";

/// Returns the sections at the end of a command's page.
pub fn common(name: &str) -> String {
    section("ENVIRONMENT", ENVIRONMENT) + &files() + &section("SEE ALSO", see_also(name))
}

/// Lists the files of the system.
fn files() -> String {
    section("FILES", FILES)
}

fn see_also(name: &str) -> &'static str {
    match name {
        "netvale" => "netvale(7), netvale.toml(5), netvale-up(1), netvale-attach(1), netvale-list(1)",
        "netvale-up" | "netvale-apply" | "netvale-export" => "netvale.toml(5), netvale(1), netvale(7)",
        "netvale-link" => "netvale-port(1), tc-netem(8), netvale(1), netvale(7)",
        "netvale-filter" | "netvale-trace" | "netvale-dump" | "netvale-mirror" => {
            "pcap-filter(7), netvale(1), netvale(7)"
        }
        _ => "netvale(1), netvale(7)",
    }
}
