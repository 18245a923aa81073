//! Names the shared library as netmap's, so a program finds one library whether linked to it or preloaded with it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnetmap.so.0");
}
