//! The subcommands in `netvale --help`, grouped as in the command reference.

use clap::Command;

const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["up", "stop", "upgrade", "apply", "export", "doctor"]),
    ("Ports", &["attach", "detach", "port", "filter", "link", "vm"]),
    (
        "Watch",
        &["list", "show", "table", "top", "monitor", "trace", "dump", "mirror", "extcap", "metrics", "sflow", "web"],
    ),
    ("Gateways", &["gateway", "sandbox", "lab", "egress", "publish", "flows"]),
    ("netmap tools", &["pkt-gen", "bridge", "tlem", "fwd", "lb", "replay", "run"]),
    ("Other hosts", &["vtep", "evpn"]),
    ("Help", &["demo", "man", "completions", "help"]),
];

/// Returns the command, whose help lists the subcommands in groups.
#[must_use]
pub fn grouped(command: Command) -> Command {
    let groups: String = GROUPS.iter().map(|(title, names)| group(&command, title, names)).collect();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn group(command: &Command, title: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
        let about = about.unwrap_or_else(|| "Print the help of a command".to_owned());
        format!("  {name:<12} {about}\n")
    };
    format!("{title}:\n{}\n", names.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each command is in exactly one group, and each line of a group names a command.
    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::cli::command();
        let mut named: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut there: Vec<_> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        named.sort_unstable();
        there.sort_unstable();
        assert_eq!(named, there);
    }
}
