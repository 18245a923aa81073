//! Completion in a shell: candidates for the word at the cursor. The shell's script (`script`) starts the program with
//! the words of the command line. Besides commands and options, the program completes the names of existing objects:
//! switches, ports, policies, programs (`words`).

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

mod script;
mod words;

pub use script::SHELLS;

/// The environment variable by which a shell requests completion; its value is the shell's name.
pub const VARIABLE: &str = "NETVALE_COMPLETE";

/// Returns the definition of the command line, with candidates for arguments whose values are names of existing
/// objects.
#[must_use]
pub fn with_values(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match values_of(&name, &arg) {
        Some(values) => arg.add(ArgValueCompleter::new(move |current: &std::ffi::OsStr| matching(current, values))),
        None => arg,
    });
    command.mut_subcommands(with_values)
}

/// A function that returns candidates for the word at the cursor. `matching` keeps the candidates that begin with the
/// word.
type Values = fn(&str) -> Vec<String>;

/// Returns the function that lists an argument's candidates. It is selected by the command and by the argument's value
/// name in the help. Returns `None` if the argument's values are not names of objects.
fn values_of(command: &str, arg: &Arg) -> Option<Values> {
    let value = arg.get_value_names()?.first()?.as_str();
    match (command, value) {
        ("attach", "PORT" | "NETMAP PORT") => Some(words::kinds),
        // This is a UDP port, not a port on a switch.
        ("evpn", "PORT") => None,
        ("detach", "PORT") => Some(words::ports_alone),
        ("run", "CMD") => Some(words::programs),
        ("link", "WORDS") => Some(words::link),
        (_, "POLICY> <VALUE") => Some(words::policies),
        (_, "SWITCH") => Some(words::switches),
        (_, "PORT" | "PORT|SWITCH" | "SWITCH[:PORT]" | "SWITCH:PORT" | "SWITCH:PORT=N") => Some(words::ports),
        _ => None,
    }
}

fn matching(current: &std::ffi::OsStr, values: Values) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let values = values(current).into_iter().filter(|value| value.starts_with(current));
    values.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn places(command: &Command, found: &mut BTreeSet<String>) {
        for arg in command.get_arguments() {
            let name = arg.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()).unwrap_or_default();
            let is_object = ["PORT", "SWITCH", "POLICY"].iter().any(|word| name.contains(word));
            // These arguments are TCP or UDP ports, not ports on a switch.
            let is_object = is_object && !["udp_port", "publish", "serve"].contains(&arg.get_id().as_str());
            assert!(!is_object || values_of(command.get_name(), arg).is_some(), "{} {name}", command.get_name());
            if values_of(command.get_name(), arg).is_some() {
                found.insert(command.get_name().to_owned());
            }
        }
        command.get_subcommands().for_each(|sub| places(sub, found));
    }

    /// Objective: each argument that is a port, a switch or a policy is completed.
    #[test]
    fn each_place_for_a_name_is_completed() {
        let mut found = BTreeSet::new();
        places(&crate::cli::command(), &mut found);
        for command in ["attach", "detach", "show", "table", "dump", "trace", "pkt-gen", "run", "link", "set", "vm"] {
            assert!(found.contains(command), "{command}: {found:?}");
        }
    }
}
