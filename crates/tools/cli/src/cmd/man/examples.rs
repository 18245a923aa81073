//! Examples for the manual pages of commands whose help has none.

/// Returns the examples for a command's page, one per line; empty if there are no examples for the command.
pub fn of(page: &str) -> String {
    let found = ALL.iter().find(|(name, _)| *name == page.trim_start_matches("netvale-"));
    let lines = found.map_or(&[][..], |(_, lines)| lines);
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

const ALL: &[(&str, &[&str])] = &[
    ("netvale", &["netvale demo", "netvale up", "netvale attach vale0 tap:nv0", "netvale list"]),
    (
        "up",
        &["netvale up", "netvale up --config /etc/netvale.toml", "netvale up --workers 2 --allow-dir /srv/captures"],
    ),
    ("stop", &["netvale stop"]),
    ("upgrade", &["netvale upgrade"]),
    ("detach", &["netvale detach vale0 web"]),
    ("port", &["netvale port set vale0:vm1 access 10 guard all"]),
    ("export", &["netvale export >netvale.toml"]),
    ("evpn", &["netvale evpn", "netvale evpn --show"]),
    ("list", &["netvale list", "netvale list vale0 --json"]),
    ("show", &["netvale show vale0:vm1"]),
    ("table", &["netvale table vale0", "netvale table vale0 --groups"]),
    ("vtep", &["netvale vtep list vale0:vxlan100"]),
    ("vtep-list", &["netvale vtep list vale0:vxlan100"]),
    ("vtep-add", &["netvale vtep add vale0:vxlan100 10.0.0.2"]),
    ("vtep-del", &["netvale vtep del vale0:vxlan100 10.0.0.2"]),
    ("vtep-check", &["netvale vtep check vale0:vxlan100 10.0.0.2"]),
    ("top", &["netvale top", "netvale top --batch"]),
    ("metrics", &["netvale metrics", "netvale metrics --listen tcp:127.0.0.1:9847"]),
    ("web", &["netvale web", "netvale web --token-file ~/.netvale-token"]),
    ("doctor", &["netvale doctor", "netvale doctor --json"]),
    ("bridge", &["netvale bridge -i netmap:eth0 -i vale0:up"]),
    ("fwd", &["netvale fwd -i vale0:a -i vale0:b --mode macswap"]),
    ("lb", &["netvale lb -i netmap:eth0 -p 4"]),
    ("extcap", &["netvale extcap --install"]),
    ("replay", &["netvale replay trace.pcapng vale0:sender --speed 2"]),
    ("demo", &["netvale demo"]),
    ("man", &["netvale man /tmp/man"]),
    ("completions", &["netvale completions bash >/etc/bash_completion.d/netvale"]),
    ("monitor", &["netvale monitor", "netvale monitor vale0 --json"]),
];
