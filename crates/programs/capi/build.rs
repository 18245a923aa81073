//! Gives the shared library netmap's name, so that it is found once whether a program links to it or it is preloaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnetmap.so.0");
}
