//! The help of `netvale attach` for one kind of port: `netvale attach vale0 tap:x --help`.

use std::ffi::OsString;

use clap::{Arg, Command};
use netvale_control::options::OPTIONS;
use netvale_control::options::kind::SpecKind;
use netvale_portspec::AttachSpec;

use super::options;

/// Returns the command. If `words` request the help of `attach` for one kind of port, the help has only that kind's
/// options.
#[must_use]
pub fn narrowed(command: Command, words: &[OsString]) -> Command {
    match asked_kind(words) {
        Some(kind) => command.mut_subcommand("attach", |attach| of_kind(attach, kind)),
        None => command,
    }
}

/// Returns the kind of the port that a command line with `--help` names; `None` if the command line has no `--help` or
/// names no port of a kind.
fn asked_kind(words: &[OsString]) -> Option<&'static SpecKind> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let after = words.iter().position(|word| *word == "attach")? + 1;
    let (flags, others): (Vec<&str>, Vec<&str>) = words[after..].iter().partition(|word| word.starts_with('-'));
    if !flags.iter().any(|flag| matches!(*flag, "-h" | "--help")) {
        return None;
    }
    let kind = |word: &str| AttachSpec::parse(word).ok().map(|spec| spec.kind());
    // An option's value may look like the name of a port for programs, but not like any other port.
    let port = others.iter().filter(|word| word.contains(':')).find_map(|word| kind(word));
    match (port, others.as_slice()) {
        (Some(kind), _) => Some(kind),
        (None, [_, name]) if flags.len() == 1 => kind(name),
        _ => None,
    }
}

fn of_kind(attach: Command, kind: &'static SpecKind) -> Command {
    let attach = if kind.takes("backend") { attach } else { attach.override_usage(SWITCH_AND_PORT) };
    let ports: String = kind.help.iter().map(|(port, what)| super::port_line(port, what)).collect();
    attach
        .mut_args(|arg| arg_of_kind(arg, kind))
        .after_long_help(format!("Ports:\n{ports}\nAll kinds of ports and their options: netvale attach --help\n"))
}

/// The usage for kinds of ports that are always on a switch.
const SWITCH_AND_PORT: &str = "netvale attach [OPTIONS] <SWITCH> <PORT>";

fn arg_of_kind(arg: Arg, kind: &SpecKind) -> Arg {
    match OPTIONS.iter().find(|option| option.key == arg.get_id().as_str()) {
        Some(option) => arg.help(options::help(option, false)).hide(!option.is_for(kind)),
        None if arg.get_id() == "first" && !kind.takes("backend") => arg.help("The switch, e.g. vale0"),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(words: &str) -> String {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let error = narrowed(crate::cli::command(), &words).try_get_matches_from(&words).unwrap_err();
        error.to_string()
    }

    /// Objective: the help of a kind of port has the options of that kind and the options that all ports have, but no
    /// others.
    #[test]
    fn a_kinds_help_has_only_its_options() {
        for kind in SpecKind::ALL {
            let text = help(&format!("netvale attach vale0 {} --help", kind.example));
            for option in OPTIONS {
                let flag = format!("--{}", option.flag());
                let is_shown = text.split_whitespace().any(|word| word == flag);
                assert_eq!(is_shown, option.is_for(kind), "{flag} of {}", kind.example);
            }
        }
    }

    /// Objective: options may precede the port; without a port, the help describes all kinds.
    #[test]
    fn the_port_may_stand_anywhere() {
        let all = help("netvale attach --help");
        assert_ne!(help("netvale attach --rings 4 --lossless vale0 tap:x --help"), all);
        assert_ne!(help("netvale --run-dir /run/x attach --help vale0 tap:x"), all);
        assert_eq!(help("netvale attach vale0 --rings 4 --help"), all);
    }
}
