//! What the threads of a daemon are still permitted to do, according to the kernel.
#![allow(dead_code, reason = "each test program uses a part")]

/// The capabilities that ports need: `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF` (linux/capability.h).
const FOR_PORTS: u64 = 1 << 12 | 1 << 13 | 1 << 39;
/// `CAP_IPC_LOCK`, which the daemon keeps if the limit of locked memory could not be lifted.
const IPC_LOCK: u64 = 1 << 14;

/// A thread of a daemon, with its status from /proc.
pub struct Thread {
    pub name: String,
    status: String,
    may_lock: bool,
}

/// Returns all threads of a process.
pub fn threads(pid: u32) -> Vec<Thread> {
    let read = |path: String| std::fs::read_to_string(path);
    let limits = read(format!("/proc/{pid}/limits")).expect("it runs");
    let is_unlimited = |line: &str| line.starts_with("Max locked memory") && line.contains("unlimited");
    let may_lock = !limits.lines().any(is_unlimited);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let thread = |task: std::io::Result<std::fs::DirEntry>| {
        let folder = task.ok()?.path();
        let read = |file| std::fs::read_to_string(folder.join(file));
        // A thread that has ended meanwhile is skipped.
        Some(Thread { name: read("comm").ok()?.trim().to_owned(), status: read("status").ok()?, may_lock })
    };
    tasks.filter_map(thread).collect()
}

impl Thread {
    /// Returns the words after `name:` in the thread's status.
    pub fn field(&self, name: &str) -> Vec<&str> {
        let line = self.status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.status)).split_whitespace().collect()
    }

    /// Asserts that the thread has both system call filters, cannot gain privileges, and has only the capabilities that
    /// ports need.
    pub fn assert_confined(&self) {
        let has = |name, value: &str| assert_eq!(self.field(name), [value], "{name} of {}", self.name);
        has("Seccomp", "2");
        has("Seccomp_filters", "2");
        has("NoNewPrivs", "1");
        let most = FOR_PORTS | if self.may_lock { IPC_LOCK } else { 0 };
        for (set, most) in [("CapInh", 0), ("CapPrm", most), ("CapEff", most), ("CapAmb", 0)] {
            let kept = u64::from_str_radix(self.field(set)[0], 16).expect("hexadecimal");
            assert_eq!(kept & !most, 0, "{set} of {} keeps more than ports need", self.name);
        }
    }

    /// Asserts that all user and group IDs of the thread are `uid`.
    pub fn assert_user(&self, uid: u32) {
        let all = [uid; 4].map(|id| id.to_string());
        assert_eq!(
            (self.field("Uid"), self.field("Gid")),
            (all.each_ref().map(String::as_str).to_vec(), all.each_ref().map(String::as_str).to_vec()),
            "{}",
            self.name
        );
        assert!(self.field("Groups").is_empty(), "{}", self.name);
    }
}
