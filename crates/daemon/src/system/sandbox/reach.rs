//! The part of the file system that the sandbox can reach, fixed when it is entered.

use std::path::{Path, PathBuf};

/// The reachable folders.
#[derive(Clone, Debug, Default)]
pub struct Reach(Option<Vec<PathBuf>>);

impl Reach {
    /// Without a sandbox: everything that its user may reach.
    pub fn everything() -> Reach {
        Reach(None)
    }

    /// Creates it from the folders that exist when the sandbox is entered.
    pub fn of<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Reach {
        Reach(Some(folders.into_iter().filter_map(|folder| folder.canonicalize().ok()).collect()))
    }

    /// Whether a path lies in one of them. A nonexistent file lies where its folder does.
    pub fn has(&self, path: &Path) -> bool {
        let Some(folders) = &self.0 else { return true };
        let real = real(path);
        folders.iter().any(|folder| real.starts_with(folder))
    }

    /// Whether a sandbox restricts folders.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }
}

/// Resolves the links of a path, as far as it exists.
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

    /// Objective: folders are compared with links resolved, for existing and nonexistent files; a folder missing at the
    /// start is not reachable.
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
