//! Reports which users may connect to a socket that excludes this user, and how this user can become one of those
//! users.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns advice for a user who may not connect to a socket, as a sentence without its full stop.
pub fn advice(socket: &Path) -> String {
    let Ok(found) = std::fs::metadata(socket) else {
        return "this user has no access to the socket's folder: ask the user who started the daemon".into();
    };
    let [users, groups] = ["/etc/passwd", "/etc/group"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
    Outsider::new(rustix::process::geteuid().as_raw(), &users, &groups).advice(&found.into())
}

/// Group and mode of a socket.
struct SocketRights {
    gid: u32,
    mode: u32,
}

impl From<Metadata> for SocketRights {
    fn from(found: Metadata) -> SocketRights {
        SocketRights { gid: found.gid(), mode: found.mode() }
    }
}

/// An excluded user, and the text of `/etc/group`.
struct Outsider<'a> {
    name: String,
    groups: &'a str,
}

impl<'a> Outsider<'a> {
    fn new(uid: u32, users: &str, groups: &'a str) -> Outsider<'a> {
        let name = by_number(users, uid).map_or_else(|| uid.to_string(), |(name, _)| name.to_owned());
        Outsider { name, groups }
    }

    fn advice(&self, rights: &SocketRights) -> String {
        const GROUP_MAY_WRITE: u32 = 0o020;
        if rights.mode & GROUP_MAY_WRITE == 0 {
            return "no group may connect: start the daemon with --socket-group or --socket-mode".into();
        }
        let user = &self.name;
        let Some((group, rest)) = by_number(self.groups, rights.gid) else {
            return format!("members of the group with ID {} may connect", rights.gid);
        };
        if rest.rsplit(':').next().unwrap_or_default().split(',').any(|member| member.trim() == user) {
            return format!("{user} joined the group {group} after logging in: log in again");
        }
        format!("members of the group {group} may connect: 'sudo usermod -aG {group} {user}', then log in again")
    }
}

/// Finds a user or a group by ID in lines of the form `NAME:PASSWORD:ID:…`. Returns the name and the text after the ID;
/// `None` if no line has the ID.
fn by_number(lines: &str, number: u32) -> Option<(&str, &str)> {
    lines.lines().find_map(|line| {
        let mut words = line.splitn(4, ':');
        let name = words.next()?;
        let found = words.nth(1)?;
        (found.parse() == Ok(number)).then(|| (name, words.next().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: users learn what they lack: membership, a new login, or a socket that is open to groups.
    #[test]
    fn users_learn_which_permission_they_lack() {
        let users = "root:x:0:0:root:/root:/bin/sh\njoe:x:1000:1000::/home/joe:/bin/sh\n";
        let advice = |groups: &str, mode, uid| Outsider::new(uid, users, groups).advice(&SocketRights { gid: 7, mode });
        let outside = advice("root:x:0:\nnetvale:x:7:ann", 0o660, 1000);
        assert!(outside.contains("usermod -aG netvale joe"), "{outside}");
        let member = advice("netvale:x:7:ann,joe", 0o660, 1000);
        assert!(member.contains("joe joined the group") && member.contains("log in again"), "{member}");
        assert!(advice("netvale:x:7:", 0o600, 1000).contains("no group may connect"));
        assert!(advice("", 0o660, 1000).contains("ID 7"));
        assert!(advice("netvale:x:7:", 0o660, 1001).contains("netvale 1001"));
    }
}
