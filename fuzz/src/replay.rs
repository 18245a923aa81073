//! Targets without libFuzzer: each input that the arguments name runs once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a target takes of an input's bytes.
pub trait TargetInput<'a> {
    /// As libFuzzer gives it.
    fn of(bytes: &'a [u8]) -> Self;
}

impl<'a> TargetInput<'a> for &'a [u8] {
    fn of(bytes: &'a [u8]) -> Self {
        bytes
    }
}

impl<'a> TargetInput<'a> for &'a str {
    fn of(bytes: &'a [u8]) -> Self {
        let valid = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
        std::str::from_utf8(&bytes[..valid]).unwrap_or_default()
    }
}

/// Runs a target on each file that the arguments name, and on all in the folders that they name. A panic names the
/// input before it.
pub fn replay(target: impl Fn(&[u8])) -> ExitCode {
    let files = match files(std::env::args_os().skip(1).map(PathBuf::from).collect()) {
        Ok(files) => files,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    for (file, bytes) in &files {
        let guard = NamedInput(file);
        target(bytes);
        drop(guard);
    }
    // A target for which nothing is kept still takes an empty input.
    target(&[]);
    println!("{} inputs", files.len());
    ExitCode::SUCCESS
}

/// Names the input when the target panics on it.
struct NamedInput<'a>(&'a Path);

impl Drop for NamedInput<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {}", self.0.display());
        }
    }
}

fn files(mut paths: Vec<PathBuf>) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                paths.push(entry.map_err(failed)?.path());
            }
        } else {
            files.push((path.clone(), std::fs::read(&path).map_err(failed)?));
        }
    }
    Ok(files)
}
