//! The management commands: a table of their paths, with the functions that run them.

mod general;
mod hash;
mod ports;
mod tree;
mod vlans;

use super::answers::{VdeAnswer, VdeError};
use super::console::VdeConsole;
use super::words::VdeCommand;

/// Runs a command. The string has its arguments, i.e. the rest of the line after the path.
type CarryOut = fn(&mut VdeConsole, &str) -> VdeAnswer;

/// A command, or the heading of a menu (without a function).
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
    row("ds/showinfo", "", "where plugs connect to", general::show_sockets),
    row("help", "[arg]", "the commands whose paths begin so", general::help),
    row("logout", "", "end this session", |_, _| VdeAnswer::Logout),
    row("shutdown", "", "end the switch", |_, _| VdeAnswer::Shutdown),
    row("showinfo", "", "version, process, run directory", general::show_all),
    row("load", "path", "run the commands of a file", general::load),
    menu("debug", "EVENTS: THERE ARE NONE"),
    row("debug/list", "", "list categories of events", |_, _| general::none_of(general::EVENTS)),
    row("debug/add", "dbgpath", "tell of a category", |_, _| Err(VdeError::Invalid).into()),
    row("debug/del", "dbgpath", "do not tell of it", |_, _| Err(VdeError::Invalid).into()),
    menu("plugin", "PLUGINS: THERE ARE NONE"),
    row("plugin/list", "", "list plugins", |_, _| general::none_of(general::PLUGINS)),
    row("plugin/add", "library", "load a plugin", |_, _| Err(VdeError::NoFile).into()),
    row("plugin/del", "name", "unload a plugin", |_, _| Err(VdeError::NoFile).into()),
    menu("hash", "ADDRESSES"),
    row("hash/showinfo", "", "numbers of the table of addresses", hash::show),
    row("hash/setsize", "N", "its size, which is only shown", hash::set_size),
    row("hash/setgcint", "N", "how often it is looked through, which is only shown", hash::set_collected),
    row("hash/setexpire", "N", "when addresses expire, which is only shown", hash::set_expires),
    row("hash/setminper", "N", "how long they stay, which is only shown", hash::set_persists),
    row("hash/print", "", "the addresses", hash::print),
    row("hash/find", "MAC [VLAN]", "where an address is", hash::find),
    menu("fstp", "LOOPS"),
    row("fstp/showinfo", "", "whether loops are watched for", tree::show),
    row("fstp/setfstp", "0/1", "watch for loops: 1=YES 0=NO", tree::set),
    row("fstp/setedge", "VLAN PORT 1/0", "nothing: there is no spanning tree", tree::accept),
    row("fstp/bonus", "VLAN PORT COST", "nothing: there is no spanning tree", tree::accept),
    row("fstp/print", "[N]", "the tree of a VLAN, which is this switch alone", tree::print),
    menu("port", "PORTS"),
    row("port/showinfo", "", "how many there may be, and what the switch is", ports::show),
    row("port/setnumports", "N", "how many there may be", ports::set_most),
    row("port/sethub", "0/1", "1=HUB 0=switch", ports::set_hub),
    row("port/setvlan", "N VLAN", "the VLAN of a port (without tags)", vlans::set),
    row("port/createauto", "", "make a port with any number", ports::create_any),
    row("port/create", "N", "make a port, for plugs that ask for it", ports::create),
    row("port/remove", "N", "remove a port without plug", ports::remove),
    row("port/allocatable", "N 0/1", "whether any plug gets the port: 1=Y 0=N", ports::set_allocatable),
    row("port/setuser", "N user", "who may have it: not here", ports::set_user),
    row("port/setgroup", "N user", "which group may have it: not here", ports::set_group),
    row("port/epclose", "N ID", "disconnect the plug ID of a port", ports::disconnect),
    row("port/resetcounter", "[N]", "counters begin at 0 again", ports::reset),
    // Clients send this misspelling, and VDE accepts it.
    row("port/resetcounters", "[N]", "the same", ports::reset),
    row("port/print", "[N]", "the ports with plugs", ports::print_active),
    row("port/allprint", "[N]", "all ports", ports::print_all),
    menu("vlan", "VLANS"),
    row("vlan/create", "N", "make the VLAN N", vlans::create),
    row("vlan/remove", "N", "remove the VLAN N", vlans::remove),
    row("vlan/addport", "N PORT", "the port has the VLAN N (with tags)", vlans::add),
    row("vlan/delport", "N PORT", "the port has it no more", vlans::delete),
    row("vlan/print", "[N]", "the VLANs, with ports that have plugs", vlans::print_active),
    row("vlan/allprint", "[N]", "the VLANs, with all ports", vlans::print_all),
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
