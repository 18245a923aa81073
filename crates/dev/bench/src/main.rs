//! The `netvale-bench` command; all of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    netvale_bench::cli::main()
}
