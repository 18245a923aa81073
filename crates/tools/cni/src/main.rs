//! The plugin; all of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    netvale_cni::main()
}
