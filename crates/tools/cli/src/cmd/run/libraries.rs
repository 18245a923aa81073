//! Finds the netmap library, which is preloaded and replaces functions of the C library, and netvale's libpcap, which
//! replaces the system's libpcap.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::CliError;

/// File names of the netmap library: the installed library, and a library that was built but not installed.
const NETMAP: [&str; 2] = ["libnetmap.so.0", "libnetmap.so"];
/// File name of netvale's libpcap if it was built but not installed. The installed library has libpcap's file names,
/// and is in the folder [`PCAP_DIR`].
const PCAP_BUILT: &str = "libnetvale_pcap.so";
/// Name of the folder with netvale's libpcap, in the folder of the other libraries.
const PCAP_DIR: &str = "pcap";
/// File names under which programs load libpcap: on Debian, on other systems, and in programs that load it at run time.
const PCAP_NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];
/// Name of the link to the system's libpcap, in [`PCAP_DIR`].
const PCAP_SYSTEM: &str = "libpcap-system.so";

/// The libraries to load into a program.
pub struct Libraries {
    /// The library to preload.
    pub netmap: PathBuf,
    /// Folder in which the program finds netvale's libpcap; `None` if the system has no libpcap, because in this case
    /// no program needs it.
    pub pcap: Option<PathBuf>,
}

impl Libraries {
    /// Finds the libraries: in `dir` if it is given; otherwise in the folder `../lib/netvale`, relative to the
    /// command's folder, or in the command's own folder, for a command that was not installed.
    ///
    /// # Errors
    /// None of these folders has the libraries.
    pub fn find(dir: Option<&Path>) -> Result<Libraries, CliError> {
        let own = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf)).unwrap_or_default();
        let places = match dir {
            Some(dir) => vec![dir.to_path_buf()],
            None => vec![own.join("../lib/netvale"), own],
        };
        let netmap = places.iter().find_map(|d| NETMAP.iter().map(|n| d.join(n)).find(|p| p.exists()));
        let Some(netmap) = netmap.and_then(|p| p.canonicalize().ok().or(Some(p))) else {
            let looked: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
            let what = format!("cannot find {} in {}", NETMAP[0], looked.join(" or "));
            let next = "use `make install` or `make build`, or give another folder with --lib-dir";
            return Err(CliError::failed(what, next));
        };
        let pcap = places.iter().find_map(|d| pcap_dir(d));
        Ok(Libraries { netmap, pcap })
    }
}

/// Returns the folder [`PCAP_DIR`] in `dir`; `None` if there is none. For a library that was built but not installed,
/// creates the folder.
fn pcap_dir(dir: &Path) -> Option<PathBuf> {
    let pcap = dir.join(PCAP_DIR);
    if pcap.join(PCAP_SYSTEM).exists() {
        return pcap.canonicalize().ok();
    }
    let built = dir.join(PCAP_BUILT).canonicalize().ok()?;
    link(&pcap, &built, &system_pcap()?).ok()?;
    pcap.canonicalize().ok()
}

fn link(pcap: &Path, built: &Path, system: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(pcap)?;
    // Another run of this command may create the folder at the same time, so a link that already exists is no error.
    let link = |to: &Path, name: &str| match std::os::unix::fs::symlink(to, pcap.join(name)) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    };
    PCAP_NAMES.iter().try_for_each(|name| link(built, name))?;
    // This link is created last, because its existence means that the folder is complete.
    link(system, PCAP_SYSTEM)
}

/// Returns the system's libpcap, as the dynamic loader finds it.
fn system_pcap() -> Option<PathBuf> {
    let list = ["/sbin/ldconfig", "ldconfig"].iter().find_map(|l| Command::new(l).arg("-p").output().ok())?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let named = |name: &str| {
        let line = list.lines().find(|l| l.trim_start().starts_with(&format!("{name} ")))?;
        line.rsplit_once("=> ").map(|(_, path)| PathBuf::from(path.trim()))
    };
    PCAP_NAMES.iter().find_map(|name| named(name)).filter(|p| p.exists())
}
