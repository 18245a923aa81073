//! Gives the shared library the soname of libpcap, and makes it depend on the system's libpcap under another name.
//!
//! The loader then gives programs this library in place of libpcap. It resolves functions that this library does not
//! define in `libpcap-system.so`, which at run time is a symbolic link to the system's libpcap. At build time, this
//! library is linked against an empty library with that soname.

use std::path::PathBuf;
use std::process::Command;

const SYSTEM: &str = "libpcap-system.so";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpcap.so.0.8");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let stub = out.join(SYSTEM);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let done = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"])
        .arg(&stub)
        .arg(format!("-Wl,-soname,{SYSTEM}"))
        .status();
    assert!(done.is_ok_and(|s| s.success()), "{compiler} cannot link an empty library");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-cdylib-link-arg={}", stub.display());
}
