//! Runs targets without libFuzzer, once for each input that the arguments name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The type of a target's parameter.
pub trait TargetInput<'a> {
    /// Converts an input's bytes to this type.
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

/// Runs a target on each file that the arguments name, and on all files in folders that the arguments name. If the
/// target panics, prints the name of the input's file.
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
    // Every target runs the empty input, even if there are no files.
    target(&[]);
    println!("{} inputs", files.len());
    ExitCode::SUCCESS
}

/// Prints the name of the input's file if it is dropped because of a panic.
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
