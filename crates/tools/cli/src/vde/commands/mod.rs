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
type CarryOut = fn(&mut VdeConsole, &str) -> VdeAnswer;

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
    row("ds/showinfo", "", "show the folder of the sockets", general::show_sockets),
    row("help", "[arg]", "list commands, by the start of their paths", general::help),
    row("logout", "", "end this session", |_, _| VdeAnswer::Logout),
    row("shutdown", "", "end the switch", |_, _| VdeAnswer::Shutdown),
    row("showinfo", "", "show version, process and run directory", general::show_all),
    row("load", "path", "run the commands of a file", general::load),
    menu("debug", "EVENTS: THERE ARE NONE"),
    row("debug/list", "", "list categories of events", |_, _| general::none_of(general::EVENTS)),
    row("debug/add", "dbgpath", "report events of a category", |_, _| Err(VdeError::Invalid).into()),
    row("debug/del", "dbgpath", "stop reporting events of a category", |_, _| Err(VdeError::Invalid).into()),
    menu("plugin", "PLUGINS: THERE ARE NONE"),
    row("plugin/list", "", "list plugins", |_, _| general::none_of(general::PLUGINS)),
    row("plugin/add", "library", "load a plugin", |_, _| Err(VdeError::NoFile).into()),
    row("plugin/del", "name", "unload a plugin", |_, _| Err(VdeError::NoFile).into()),
    menu("hash", "ADDRESSES"),
    row("hash/showinfo", "", "show the size and timers of the address table", hash::show),
    row("hash/setsize", "N", "size of the table (shown only, no effect)", hash::set_size),
    row("hash/setgcint", "N", "seconds between collections (shown only, no effect)", hash::set_collected),
    row("hash/setexpire", "N", "seconds until addresses expire (shown only, no effect)", hash::set_expires),
    row("hash/setminper", "N", "seconds that addresses stay (shown only, no effect)", hash::set_persists),
    row("hash/print", "", "list the addresses", hash::print),
    row("hash/find", "MAC [VLAN]", "show the port of an address", hash::find),
    menu("fstp", "LOOPS"),
    row("fstp/showinfo", "", "show whether the switch watches for loops", tree::show),
    row("fstp/setfstp", "0/1", "watch for loops: 1=YES 0=NO", tree::set),
    row("fstp/setedge", "VLAN PORT 1/0", "no effect: the switch has no spanning tree", tree::accept),
    row("fstp/bonus", "VLAN PORT COST", "no effect: the switch has no spanning tree", tree::accept),
    row("fstp/print", "[N]", "show the tree of a VLAN: this switch alone", tree::print),
    menu("port", "PORTS"),
    row("port/showinfo", "", "show the maximum number of ports, and the mode", ports::show),
    row("port/setnumports", "N", "maximum number of ports", ports::set_most),
    row("port/sethub", "0/1", "1=HUB 0=switch", ports::set_hub),
    row("port/setvlan", "N VLAN", "set the untagged VLAN of a port", vlans::set),
    row("port/createauto", "", "create a port with any number", ports::create_any),
    row("port/create", "N", "create a port for plugs that request its number", ports::create),
    row("port/remove", "N", "remove a port without a plug", ports::remove),
    row("port/allocatable", "N 0/1", "let any plug use the port: 1=Y 0=N", ports::set_allocatable),
    row("port/setuser", "N user", "user of a port (not supported)", ports::set_user),
    row("port/setgroup", "N user", "group of a port (not supported)", ports::set_group),
    row("port/epclose", "N ID", "disconnect the plug ID of a port", ports::disconnect),
    row("port/resetcounter", "[N]", "reset the counters of a port, or of all", ports::reset),
    // Clients send this misspelled command, and VDE accepts it.
    row("port/resetcounters", "[N]", "like port/resetcounter", ports::reset),
    row("port/print", "[N]", "list the ports with plugs", ports::print_active),
    row("port/allprint", "[N]", "list all ports", ports::print_all),
    menu("vlan", "VLANS"),
    row("vlan/create", "N", "create the VLAN N", vlans::create),
    row("vlan/remove", "N", "remove the VLAN N", vlans::remove),
    row("vlan/addport", "N PORT", "add a port to the VLAN N, with tags", vlans::add),
    row("vlan/delport", "N PORT", "remove a port from the VLAN N", vlans::delete),
    row("vlan/print", "[N]", "list the VLANs, with ports that have plugs", vlans::print_active),
    row("vlan/allprint", "[N]", "list the VLANs, with all ports", vlans::print_all),
];

/// Runs a line: looks up the command and calls its function.
pub(super) fn run(console: &mut VdeConsole, line: &str) -> VdeAnswer {
    let Some(command) = VdeCommand::read(line) else { return VdeAnswer::Nothing };
    let known = ROWS.iter().find(|row| row.path == command.path).and_then(|row| row.carry_out);
    known.map_or(VdeAnswer::Done(Err(VdeError::NoCommand)), |carry_out| carry_out(console, command.rest))
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
