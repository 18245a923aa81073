//! Gives the shared library the soname of netmap's, so that a program finds one library whether linked to it or
//! preloaded with it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnetmap.so.0");
}
