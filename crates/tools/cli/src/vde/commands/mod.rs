//! The management commands: a table of their paths, with the functions that run them.

mod general;
mod hash;
mod ports;
mod tree;
mod vlans;

use super::answers::{VdeAnswer, VdeError};
use super::console::VdeConsole;
use super::words::VdeCommand;

/// A function that runs a command. The string contains the command's arguments: the rest of the line after the path.
enum CarryOut {
    /// The answer is a status.
    Done(fn(&mut VdeConsole, &str) -> Result<(), VdeError>),
    /// The answer is data and a status.
    Told(fn(&mut VdeConsole, &str) -> Result<String, VdeError>),
    Other(fn(&mut VdeConsole, &str) -> VdeAnswer),
}

use CarryOut::{Done, Other, Told};

/// A command or, if it has no function, the heading of a menu.
struct CommandRow {
    path: &'static str,
    syntax: &'static str,
    help: &'static str,
    carry_out: Option<CarryOut>,
}

const fn menu(path: &'static str, help: &'static str) -> CommandRow {
    CommandRow { path, syntax: "============", help, carry_out: None }
}

const fn row(path: &'static str, syntax: &'static str, help: &'static str, carry_out: CarryOut) -> CommandRow {
    CommandRow { path, syntax, help, carry_out: Some(carry_out) }
}

const ROWS: &[CommandRow] = &[
    menu("ds", "DATA SOCKETS"),
    row("ds/showinfo", "", "show the folder of the sockets", Told(general::show_sockets)),
    row("help", "[arg]", "list commands, by the start of their paths", Told(general::help)),
    row("logout", "", "end this session", Other(|_, _| VdeAnswer::Logout)),
    row("shutdown", "", "end the switch", Other(|_, _| VdeAnswer::Shutdown)),
    row("showinfo", "", "show version, process and run directory", Told(general::show_all)),
    row("load", "path", "run the commands of a file", Other(general::load)),
    menu("debug", "EVENTS: THERE ARE NONE"),
    row("debug/list", "", "list categories of events", Other(|_, _| general::none_of(general::EVENTS))),
    row("debug/add", "dbgpath", "report events of a category", Done(|_, _| Err(VdeError::Invalid))),
    row("debug/del", "dbgpath", "stop reporting events of a category", Done(|_, _| Err(VdeError::Invalid))),
    menu("plugin", "PLUGINS: THERE ARE NONE"),
    row("plugin/list", "", "list plugins", Other(|_, _| general::none_of(general::PLUGINS))),
    row("plugin/add", "library", "load a plugin", Done(|_, _| Err(VdeError::NoFile))),
    row("plugin/del", "name", "unload a plugin", Done(|_, _| Err(VdeError::NoFile))),
    menu("hash", "ADDRESSES"),
    row("hash/showinfo", "", "show the size and timers of the address table", Told(hash::show)),
    row("hash/setsize", "N", "size of the table (shown only, no effect)", Done(hash::set_size)),
    row("hash/setgcint", "N", "seconds between collections (shown only, no effect)", Done(hash::set_collected)),
    row("hash/setexpire", "N", "seconds until addresses expire (shown only, no effect)", Done(hash::set_expires)),
    row("hash/setminper", "N", "seconds that addresses stay (shown only, no effect)", Done(hash::set_persists)),
    row("hash/print", "", "list the addresses", Told(hash::print)),
    row("hash/find", "MAC [VLAN]", "show the port of an address", Told(hash::find)),
    menu("fstp", "LOOPS"),
    row("fstp/showinfo", "", "show whether the switch watches for loops", Told(tree::show)),
    row("fstp/setfstp", "0/1", "watch for loops: 1=YES 0=NO", Told(tree::set)),
    row("fstp/setedge", "VLAN PORT 1/0", "no effect: the switch has no spanning tree", Done(tree::accept)),
    row("fstp/bonus", "VLAN PORT COST", "no effect: the switch has no spanning tree", Done(tree::accept)),
    row("fstp/print", "[N]", "show the tree of a VLAN: this switch alone", Told(tree::print)),
    menu("port", "PORTS"),
    row("port/showinfo", "", "show the maximum number of ports, and the mode", Told(ports::show)),
    row("port/setnumports", "N", "maximum number of ports", Done(ports::set_most)),
    row("port/sethub", "0/1", "1=HUB 0=switch", Done(ports::set_hub)),
    row("port/setvlan", "N VLAN", "set the untagged VLAN of a port", Done(vlans::set)),
    row("port/createauto", "", "create a port with any number", Told(ports::create_any)),
    row("port/create", "N", "create a port for plugs that request its number", Done(ports::create)),
    row("port/remove", "N", "remove a port without a plug", Done(ports::remove)),
    row("port/allocatable", "N 0/1", "let any plug use the port: 1=Y 0=N", Done(ports::set_allocatable)),
    row(
        "port/setuser",
        "N user",
        "user of a port (not supported)",
        Done(|console, rest| ports::own(console, rest, "/etc/passwd")),
    ),
    row(
        "port/setgroup",
        "N user",
        "group of a port (not supported)",
        Done(|console, rest| ports::own(console, rest, "/etc/group")),
    ),
    row("port/epclose", "N ID", "disconnect the plug ID of a port", Done(ports::disconnect)),
    row("port/resetcounter", "[N]", "reset the counters of a port, or of all", Done(ports::reset)),
    // Clients send this misspelled command, and VDE accepts it.
    row("port/resetcounters", "[N]", "like port/resetcounter", Done(ports::reset)),
    row("port/print", "[N]", "list the ports with plugs", Told(|console, rest| ports::print(console, rest, false))),
    row("port/allprint", "[N]", "list all ports", Told(|console, rest| ports::print(console, rest, true))),
    menu("vlan", "VLANS"),
    row("vlan/create", "N", "create the VLAN N", Done(vlans::create)),
    row("vlan/remove", "N", "remove the VLAN N", Done(vlans::remove)),
    row("vlan/addport", "N PORT", "add a port to the VLAN N, with tags", Done(vlans::add)),
    row("vlan/delport", "N PORT", "remove a port from the VLAN N", Done(vlans::delete)),
    row(
        "vlan/print",
        "[N]",
        "list the VLANs, with ports that have plugs",
        Told(|console, rest| vlans::print(console, rest, false)),
    ),
    row(
        "vlan/allprint",
        "[N]",
        "list the VLANs, with all ports",
        Told(|console, rest| vlans::print(console, rest, true)),
    ),
];

/// Runs a line: looks up the command and calls its function.
pub(super) fn run(console: &mut VdeConsole, line: &str) -> VdeAnswer {
    let Some(command) = VdeCommand::read(line) else { return VdeAnswer::Nothing };
    let known = ROWS.iter().find(|row| row.path == command.path).and_then(|row| row.carry_out.as_ref());
    match known {
        Some(Done(run)) => VdeAnswer::Done(run(console, command.rest)),
        Some(Told(run)) => VdeAnswer::told(run(console, command.rest)),
        Some(Other(run)) => run(console, command.rest),
        None => VdeAnswer::Done(Err(VdeError::NoCommand)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each path is in the table once, below the heading of its menu.
    #[test]
    fn each_path_stands_once_in_its_menu() {
        let mut menu = "";
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.path != row.path), "{}", row.path);
            match row.path.split_once('/') {
                Some((head, _)) => assert_eq!(head, menu),
                None if row.carry_out.is_none() => menu = row.path,
                None => {}
            }
        }
    }
}
