//! Where the daemon's sockets are.

use std::path::PathBuf;

/// File name of the control socket in the run directory.
pub const CONTROL_SOCKET: &str = "control.sock";
/// File name of the attach socket in the run directory.
pub const ATTACH_SOCKET: &str = "attach.sock";
/// Environment variable that names the run directory.
pub const RUN_DIR_VARIABLE: &str = "NETVALE_RUN_DIR";

/// The run directory when none is named: `$NETVALE_RUN_DIR`, else `/run/netvale` for root, else `$XDG_RUNTIME_DIR/netvale`, else
/// `/tmp/netvale-UID`.
pub fn default_run_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set(RUN_DIR_VARIABLE) {
        return dir;
    }
    let uid = rustix::process::getuid();
    if uid.is_root() {
        return PathBuf::from("/run/netvale");
    }
    set("XDG_RUNTIME_DIR")
        .map_or_else(|| PathBuf::from(format!("/tmp/netvale-{}", uid.as_raw())), |d| d.join("netvale"))
}
