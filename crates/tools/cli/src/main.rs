//! The `netvale` command; all of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    netvale_cli::main()
}
