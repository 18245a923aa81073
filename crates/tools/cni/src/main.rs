//! The plugin's program; its code is in the library `netvale_cni`.

fn main() -> std::process::ExitCode {
    netvale_cni::main()
}
