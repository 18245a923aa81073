//! The keys of the configuration file, except those of `[[port]]`: the file's schema and its reference are made from
//! this table.

use netvale_control::options::Shape;

/// A key.
pub struct Key {
    /// Its table; empty for the keys before the first table.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Type and range.
    pub shape: Shape,
    /// The default, in words.
    pub default: &'static str,
    /// Description of the setting.
    pub doc: &'static str,
}

const fn key(table: &'static str, name: &'static str, shape: Shape, default: &'static str, doc: &'static str) -> Key {
    Key { table, name, shape, default, doc }
}

const COUNT: Shape = Shape::Number(0, 1 << 20);

/// All keys.
pub const KEYS: [Key; 33] = [
    key(
        "",
        "run_dir",
        Shape::Text,
        "$NETVALE_RUN_DIR, else /run/netvale for root, else $XDG_RUNTIME_DIR/netvale, else /tmp/netvale-UID",
        "Folder of the sockets.",
    ),
    key(
        "",
        "workers",
        Shape::Number(1, 64),
        "one for each of cpus, else one for every four CPUs, 1 to 8",
        "Threads that forward.",
    ),
    key("", "cpus", Shape::Numbers, "workers are not pinned", "CPU of each worker, in turn."),
    key(
        "",
        "spin_us",
        Shape::Number(0, u32::MAX),
        "50",
        "Microseconds for which a worker looks for frames, at most, before it sleeps: as long as looking pays. 0: it sleeps immediately.",
    ),
    key("", "poll_always", Shape::Flag, "false", "Workers never sleep."),
    key(
        "",
        "rt_priority",
        Shape::Number(1, 99),
        "ordinary threads",
        "Real-time priority (SCHED_FIFO) at which the workers run.",
    ),
    key(
        "",
        "user",
        Shape::Text,
        "who starts the daemon",
        "User that a daemon of root's becomes, with that user's group: name or number.",
    ),
    key("", "sandbox", Shape::Flag, "true", "Capabilities are dropped, seccomp and Landlock are on."),
    key(
        "",
        "latency_sampling",
        Shape::Number(0, 1_000_000_000),
        "0",
        "One of this many batches of each ring is timed, on average, for the metrics and the page: how long its frames take from the ring until they are delivered. 0: none is.",
    ),
    key(
        "",
        "require_ports",
        Shape::Flag,
        "false",
        "All ports of the file have to be attached, or the daemon does not start; otherwise it leaves some out.",
    ),
    key(
        "",
        "allow_dirs",
        Shape::Texts,
        "none",
        "Folders of capture files and sockets: reachable in the sandbox, and for other users than the daemon's, who must name them as they are named here.",
    ),
    key(
        "",
        "allow_nics",
        Shape::Texts,
        "none",
        "Interfaces that every user who can connect may open, not only root and the daemon's own user.",
    ),
    key(
        "",
        "allow_taps",
        Shape::Texts,
        "none",
        "TAPs that every user who can connect may attach, not only root and the daemon's own user.",
    ),
    key(
        "",
        "trusted_hypervisors",
        Shape::Texts,
        "none",
        "Users (\"*\": all) whose guests, at ports of root's, take the time of root's workers, and can make all wait.",
    ),
    key("sockets", "owner", Shape::Text, "who runs the daemon", "Owner of the sockets: name or number."),
    key("sockets", "group", Shape::Text, "that of who runs the daemon", "Group of the sockets: name or number."),
    key(
        "sockets",
        "mode",
        Shape::Text,
        "0600, or 0660 when a group is named",
        "Permission bits of the sockets, octal.",
    ),
    key(
        "switch",
        "ageing_s",
        Shape::Number(1, 1_000_000),
        "300",
        "Seconds after which an unseen address is forgotten.",
    ),
    key("switch", "table_entries", Shape::Number(8, 1 << 24), "16384", "Entries of each switch's forwarding table."),
    key(
        "switch",
        "shared",
        Shape::Texts,
        "none",
        "Switches on which ports of all users may meet; \"*\" is all. Any other switch is for the user who made it, root and the daemon's own user.",
    ),
    key(
        "switch",
        "sticky_addresses",
        Shape::Flag,
        "true",
        "An address behind one user's port does not move to another user's until it expires or the port is detached.",
    ),
    key(
        "switch",
        "lossless_between_users",
        Shape::Flag,
        "false",
        "A lossless port holds back other users' senders, too; otherwise their frames are dropped when it is full.",
    ),
    key(
        "switch",
        "policies",
        Shape::Policies,
        "none",
        "Policies that ports begin with, by the names of switches (\"*\" is all). Users make them narrower only.",
    ),
    key(
        "quota",
        "connections",
        COUNT,
        "256",
        "Connections to both sockets that one user may have; root and the daemon's own user have no quota.",
    ),
    key("quota", "ports", COUNT, "64", "Ports that one user may have, ends of pipes and monitors included."),
    key("quota", "switches", COUNT, "8", "Switches that one user may make."),
    key("quota", "memory_mib", COUNT, "2048", "Memory of one user's ports, in MiB."),
    key(
        "quota",
        "descriptors",
        COUNT,
        "4096",
        "Descriptors of the daemon's that one user's ports take; a ring takes up to four.",
    ),
    key("quota", "addresses", COUNT, "2048", "Addresses behind one user's ports in a switch's forwarding table."),
    key("quota", "unread_kib", COUNT, "8192", "Answers that one user's control connections leave unread, in KiB."),
    key("quota", "log_lines", COUNT, "20", "Lines a second in the log about one user; further ones are counted."),
    key(
        "quota",
        "captures_mib",
        COUNT,
        "1024",
        "Capture files of one user, in MiB: those that are being written, and those that are there from before.",
    ),
    key("quota", "subscriptions", COUNT, "16", "Connections of one user that are told of events."),
];
