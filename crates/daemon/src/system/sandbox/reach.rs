//! What of the file system the sandbox was entered with: no folder can be added later.

use std::path::{Path, PathBuf};

/// The folders that the daemon reaches.
#[derive(Clone, Debug, Default)]
pub struct Reach(Option<Vec<PathBuf>>);

impl Reach {
    /// Without a sandbox: everything that its user may reach.
    pub fn everything() -> Reach {
        Reach(None)
    }

    /// These folders, as far as they are there when the sandbox is entered.
    pub fn of<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Reach {
        Reach(Some(folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect()))
    }

    /// Whether a path lies in one of them. What is not there yet lies where its folder does.
    pub fn has(&self, path: &Path) -> bool {
        let Some(folders) = &self.0 else { return true };
        let real = real(path);
        folders.iter().any(|folder| real.starts_with(folder))
    }

    /// Whether there is a sandbox that keeps folders out.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }
}

/// The path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for at in path.ancestors() {
        if let Ok(real) = at.canonicalize() {
            return missing.into_iter().rev().fold(real, |real, name| real.join(name));
        }
        missing.extend(at.file_name());
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: folders are compared where links lead, whether what lies in them is there or not; a folder that was
    /// missing at the start is not reached.
    #[test]
    fn links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("real/in")).unwrap();
        std::fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        let reach = Reach::of([at("link"), at("later")].iter().map(PathBuf::as_path));
        for (path, expected) in [
            ("real", true),
            ("link/in", true),
            ("real/new/newer", true),
            ("other", false),
            ("real/../other", false),
            ("later", false),
            ("realer", false),
        ] {
            assert_eq!(reach.has(&at(path)), expected, "{path}");
        }
        assert!(reach.is_limited() && !Reach::everything().is_limited() && Reach::everything().has(&at("other")));
    }
}
