//! The part of the file system that the sandboxed daemon can access, which is fixed when the daemon enters the sandbox.

use std::path::{Path, PathBuf};

/// The accessible folders; `None` if there is no sandbox.
#[derive(Clone, Debug, Default)]
pub struct Reach(Option<Vec<PathBuf>>);

impl Reach {
    /// Returns the reach of a daemon without a sandbox: everything that the daemon's user may access.
    pub fn everything() -> Reach {
        Reach(None)
    }

    /// Returns the reach of a sandbox with these folders. Folders that do not exist when the sandbox is entered are not
    /// reachable.
    pub fn of<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Reach {
        Reach(Some(folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect()))
    }

    /// Whether a path is in one of the folders; always true without a sandbox. A file that does not exist counts as
    /// being in its folder.
    pub fn has(&self, path: &Path) -> bool {
        let Some(folders) = &self.0 else { return true };
        let real = real(path);
        folders.iter().any(|folder| real.starts_with(folder))
    }

    /// Whether a sandbox restricts access to folders.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }
}

/// Resolves the links in the existing part of a path.
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

    /// Objective: folders are compared with links resolved, for existing and nonexistent files; a folder that is
    /// missing when the sandbox is entered is not reachable.
    #[test]
    fn folders_are_compared_with_links_resolved() {
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
