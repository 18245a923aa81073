//! The `netvale-bench` command; its code is in the library beside this file.

fn main() -> std::process::ExitCode {
    netvale_bench::cli::main()
}
