//! The host's resolver settings and name servers, from `resolv.conf` (resolv.conf(5)). The file is read again when it
//! changes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The port of name servers.
pub const PORT: u16 = 53;
/// Maximum number of servers that are taken from the file. The C library takes three.
const MAX_SERVERS: usize = 8;
/// Time to wait for a server's answer, if the file does not set this time.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Number of times that each server is asked, if the file does not set this number.
const ATTEMPTS: u32 = 2;
/// Maximum length of a file that is read, in bytes.
const MAX_FILE: u64 = 1 << 16;

/// The resolver settings that the file contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolverSettings {
    /// The servers, in the order in which they are asked.
    pub servers: Vec<SocketAddr>,
    /// Time to wait for one server's answer.
    pub timeout: Duration,
    /// Number of times that each server is asked.
    pub attempts: u32,
}

/// Inode, size, and modification time in seconds and nanoseconds. If any of these differs, the file has changed.
type FileStamp = [i64; 4];

/// The file's path, and its settings as last read.
#[derive(Debug)]
pub struct ResolverFile {
    path: PathBuf,
    settings: ResolverSettings,
    stamp: Option<FileStamp>,
    looked: Option<Instant>,
}

impl ResolverFile {
    /// Records the path of a file, which [`ResolverFile::settings`] reads.
    pub fn new(path: &Path) -> Self {
        ResolverFile { path: path.to_path_buf(), settings: parse(""), stamp: None, looked: None }
    }

    /// Returns the settings. Checks at most once per second whether the file has changed.
    pub fn settings(&mut self, now: Instant) -> &ResolverSettings {
        let is_recent = |looked| now.saturating_duration_since(looked) < Duration::from_secs(1);
        if !self.looked.is_some_and(is_recent) {
            self.looked = Some(now);
            self.read();
        }
        &self.settings
    }

    fn read(&mut self) {
        let meta = fs::metadata(&self.path).ok();
        let stamp = meta.as_ref().map(|meta| [meta.ino() as i64, meta.size() as i64, meta.mtime(), meta.mtime_nsec()]);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        // If the file is missing, too long or not UTF-8, the previous settings stay.
        let small = meta.filter(|meta| meta.size() <= MAX_FILE);
        if let Some(text) = small.and_then(|_| fs::read_to_string(&self.path).ok()) {
            self.settings = parse(&text);
            self.stamp = stamp;
            tracing::debug!("name servers: {:?}", self.settings.servers);
        }
    }
}

/// Parses the file's text. If there is no `nameserver` line, the server is 127.0.0.1, as resolv.conf(5) says.
fn parse(text: &str) -> ResolverSettings {
    let mut settings = ResolverSettings { servers: Vec::new(), timeout: TIMEOUT, attempts: ATTEMPTS };
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => settings.servers.extend(words.next().and_then(server)),
            Some("options") => words.for_each(|word| set_option(&mut settings, word)),
            _ => {}
        }
    }
    settings.servers.truncate(MAX_SERVERS);
    if settings.servers.is_empty() {
        settings.servers.push((Ipv4Addr::LOCALHOST, PORT).into());
    }
    settings
}

/// Parses a server's address. An IPv6 address may have a zone: `fe80::1%eth0`. Returns `None` if the text is malformed,
/// or the zone is not an interface.
fn server(text: &str) -> Option<SocketAddr> {
    let Some((address, zone)) = text.split_once('%') else {
        return Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT));
    };
    let index = zone.parse().ok().or_else(|| interface_index(zone))?;
    Some(SocketAddrV6::new(address.parse::<Ipv6Addr>().ok()?, PORT, 0, index).into())
}

fn interface_index(name: &str) -> Option<u32> {
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    rustix::net::netdevice::name_to_index(socket, name).ok()
}

fn set_option(settings: &mut ResolverSettings, word: &str) {
    match word.split_once(':').map(|(name, value)| (name, value.parse::<u32>())) {
        Some(("timeout", Ok(seconds))) => settings.timeout = Duration::from_secs(seconds.clamp(1, 30).into()),
        Some(("attempts", Ok(attempts))) => settings.attempts = attempts.clamp(1, 5),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Vec<String> {
        parse(text).servers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file_is_read_in_all_its_forms() {
        let text = [
            "# comment",
            "search lan",
            " nameserver\t192.0.2.1 # one",
            ";nameserver 192.0.2.9",
            "nameserver 2001:db8::1",
            "nameserver fe80::1%3",
            "nameserver bad",
            "nameserver",
            "options timeout:7 attempts:3 rotate edns0",
        ]
        .join("\n");
        assert_eq!(servers(&text), ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%3]:53"]);
        let settings = parse(&text);
        assert_eq!((settings.timeout, settings.attempts), (Duration::from_secs(7), 3));
        assert_eq!(servers(""), ["127.0.0.1:53"]);
        assert_eq!(parse("options timeout:0 attempts:x timeout:99").timeout, Duration::from_secs(30));
    }

    #[test]
    fn a_change_is_seen_and_a_loss_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let mut file = ResolverFile::new(&path);
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let first = |file: &mut ResolverFile, at| file.settings(at).servers[0].to_string();
        assert_eq!(first(&mut file, now), "127.0.0.1:53");
        fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        assert_eq!(first(&mut file, now), "127.0.0.1:53", "within the same second");
        assert_eq!(first(&mut file, now + second), "192.0.2.1:53");
        fs::write(&path, "nameserver 192.0.2.22\n").unwrap();
        assert_eq!(first(&mut file, now + 2 * second), "192.0.2.22:53");
        fs::remove_file(&path).unwrap();
        assert_eq!(first(&mut file, now + 3 * second), "192.0.2.22:53");
    }
}
