//! Sections common to all pages of commands.

use super::roff::section;

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
pub fn sections(name: &str) -> String {
    section("ENVIRONMENT", ENVIRONMENT) + &files() + &section("SEE ALSO", see_also(name))
}

/// Lists the files of the system.
pub fn files() -> String {
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
