//! Earlier states of the tree in git, if available.

use std::path::Path;
use std::process::Command;

/// Maximum number of a file's commits that are inspected.
const COMMITS: usize = 200;

/// Runs git with `arguments` in `root`. Returns its output; `None` if git cannot be run or fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the committed versions of a file, including those on merged branches, newest first: for each, the
/// abbreviated commit and the file's text. Returns `None` without git or outside a repository.
pub fn versions(root: &Path, file: &str) -> Option<Vec<(String, String)>> {
    let most = format!("--max-count={COMMITS}");
    let commits = git(root, &["rev-list", "--full-history", "--abbrev-commit", &most, "HEAD", "--", file])?;
    let text = |commit: &str| git(root, &["show", &format!("{commit}:./{file}")]);
    Some(commits.lines().filter_map(|commit| Some((commit.to_owned(), text(commit)?))).collect())
}

/// Returns whether the repository is shallow: older commits are missing in it.
pub fn is_shallow(root: &Path) -> bool {
    git(root, &["rev-parse", "--is-shallow-repository"]).is_some_and(|answer| answer.trim() == "true")
}

/// The changes since the commit that last changed `file`, or since HEAD if no commit has changed it.
pub struct GitChanges {
    /// Paths of the files that were changed, added or deleted.
    pub files: Vec<String>,
    base: String,
}

impl GitChanges {
    /// Returns the changes since the last commit that changed `file`. Returns `None` without git or commits.
    pub fn since_change_of(root: &Path, file: &str) -> Option<Self> {
        let last = git(root, &["log", "-1", "--format=%H", "--", file])?;
        let base = if last.trim().is_empty() { "HEAD".to_owned() } else { last.trim().to_owned() };
        let changed = git(root, &["diff", "--name-only", "--no-renames", "--relative", "-z", &base])?;
        let added = git(root, &["ls-files", "--others", "--exclude-standard", "-z"])?;
        let names = changed.split('\0').chain(added.split('\0'));
        Some(Self { files: names.filter(|name| !name.is_empty()).map(str::to_owned).collect(), base })
    }

    /// Returns a file's text before the changes; `None` if the file did not exist.
    pub fn before(&self, root: &Path, file: &str) -> Option<String> {
        git(root, &["show", &format!("{}:./{file}", self.base)])
    }
}
