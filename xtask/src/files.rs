//! The files of the workspace.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Reads the text file `name` below `root`.
pub fn read(root: &Path, name: &str) -> Result<String, String> {
    fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"))
}

/// Returns the lines of a list, without comments, which begin with `#`, and without blank lines.
pub fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(|line| line.split('#').next().unwrap_or(line).trim()).filter(|line| !line.is_empty())
}

/// Returns all files below the folder `folder` of `root`, sorted, without build directories.
pub fn files_below(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("{folder}: {e}");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if !entry.path().is_dir() {
            files.push(name);
        } else if entry.file_name() != "target" {
            files.extend(files_below(root, &name)?);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the folders of the crates: the folders below `crates` that have a manifest.
pub fn crate_folders(root: &Path) -> Result<Vec<String>, String> {
    let files = files_below(root, "crates")?;
    Ok(files.iter().filter_map(|name| name.strip_suffix("/Cargo.toml")).map(str::to_owned).collect())
}

/// Returns the files that git tracks below `root`.
pub fn tracked_files(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git ls-files: {e}; install git"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files: {}", stderr.trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
