//! Gives the shared library the soname of netmap's libnetmap. If a program is linked to libnetmap and this library is
//! preloaded, the loader then takes this library for libnetmap, and does not load libnetmap itself.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnetmap.so.0");
}
