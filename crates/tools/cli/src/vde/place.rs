//! The folder of a switch's sockets, and the daemon's run directory.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use netvale_control::dirs::{ATTACH_SOCKET, CONTROL_SOCKET};
use netvale_portspec::AttachSpec;
use rustix::fs::FlockOperation;

use super::VdeFailure;
use super::options::VdeOptions;

/// Default folders of a switch's sockets. The first folder that can be created or belongs to the user is used.
const USUAL_FOLDERS: [&str; 2] = ["/var/run/vde.ctl", "/tmp/vde.ctl"];
/// The name of the daemon's run directory in the folder of the sockets.
const RUN_DIR: &str = ".netvale";
/// Maximum length of a socket's path in bytes (unix(7)).
pub(super) const LONGEST_SOCKET: usize = 107;
/// Minimum permission bits of a new folder: all permissions for the folder's owner, and set-group-ID, so that new files
/// get the folder's group.
const OWNERS: u32 = 0o2700;

/// The directories of a switch.
#[derive(Debug)]
pub(super) struct SwitchPlace {
    /// The folder of the switch's sockets.
    pub folder: PathBuf,
    /// The daemon's run directory.
    pub run_dir: PathBuf,
}

impl SwitchPlace {
    /// Creates the folder, with the requested mode and group, and the run directory.
    pub(super) fn make(options: &VdeOptions) -> Result<SwitchPlace, VdeFailure> {
        let (folder, is_new) = match &options.sock {
            Some(folder) => make_folder(folder)?,
            None => usual_folder()?,
        };
        let place = SwitchPlace { run_dir: run_dir(&folder)?, folder };
        let done = place.prepare(options, is_new);
        if done.is_err() {
            place.remove();
        }
        done.map(|()| place)
    }

    fn prepare(&self, options: &VdeOptions, is_new: bool) -> Result<(), VdeFailure> {
        if is_new || options.dirmode.is_some() || options.group.is_some() {
            give(&self.folder, options.dirmode.unwrap_or_else(|| dirmode(options.mode)), options.group.as_deref())?;
        }
        make_private(&self.run_dir)
    }

    /// Removes the run directory unless another daemon uses it, and removes the folder if it is empty. The daemon of
    /// this switch must have ended before this is called.
    pub(super) fn remove(&self) {
        let lock = self.lock();
        // Another switch may have started in the same folder; in this case, the run directory stays.
        if !lock.as_ref().is_some_and(is_held) {
            let _ = std::fs::remove_dir_all(&self.run_dir);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }

    /// Opens the daemon's lock file; `None` if it does not exist.
    fn lock(&self) -> Option<File> {
        File::open(self.run_dir.join("lock")).ok()
    }
}

/// Returns whether a daemon holds the lock. If none does, this process takes the lock, and holds it until the file is
/// closed.
fn is_held(lock: &File) -> bool {
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Returns the first default folder that could be created or that belongs to this user, and whether the folder is new.
fn usual_folder() -> Result<(PathBuf, bool), VdeFailure> {
    let mut first = None;
    for folder in USUAL_FOLDERS {
        match make_folder(Path::new(folder)) {
            Ok((made, is_new)) if is_new || is_own(&made) => return Ok((made, is_new)),
            Ok((made, _)) => _ = first.get_or_insert(VdeFailure(format!("{} belongs to another user", made.display()))),
            Err(why) => _ = first.get_or_insert(why),
        }
    }
    Err(first.unwrap_or_else(|| VdeFailure("no folder for the sockets".to_owned())))
}

fn is_own(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw())
}

/// Creates a folder unless it exists. Returns its path with symbolic links resolved, and whether the folder is new.
fn make_folder(given: &Path) -> Result<(PathBuf, bool), VdeFailure> {
    let failed = |what: &str| VdeFailure::step(format!("{}: {what}", given.display()));
    let folder = std::path::absolute(given).map_err(failed("invalid path"))?;
    let spec = format!("vde:{}", folder.display());
    AttachSpec::parse(&spec).map_err(|why| VdeFailure(format!("{}: {why}", given.display())))?;
    let is_new = match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => true,
        Err(why) if why.kind() == ErrorKind::AlreadyExists => false,
        Err(why) => return Err(failed("cannot create the folder")(why)),
    };
    let folder = folder.canonicalize().map_err(failed("cannot resolve the path"))?;
    if !folder.is_dir() {
        return Err(VdeFailure(format!("{} exists and is not a folder: choose another path", given.display())));
    }
    Ok((folder, is_new))
}

/// Derives the folder's permission bits from the permission bits of the control socket, so that users who may connect
/// may create their own sockets in the folder.
fn dirmode(mode: u32) -> u32 {
    let class = |bits: u32| if mode & bits == 0 { 0 } else { bits };
    OWNERS | class(0o070) | class(0o007)
}

/// Sets a file's group, if one is given, and its permission bits.
pub(super) fn give(path: &Path, mode: u32, group: Option<&str>) -> Result<(), VdeFailure> {
    let failed = |what: &str| VdeFailure::step(format!("{}: {what}", path.display()));
    if let Some(group) = group {
        chown(path, None, Some(group_number(group)?)).map_err(failed("cannot set the group"))?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("cannot set the permission bits"))
}

/// Returns the ID of a group, given by its name in `/etc/group` or as a number.
pub(super) fn group_number(group: &str) -> Result<u32, VdeFailure> {
    let file = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let known = file.lines().find_map(|line| line.strip_prefix(group)?.strip_prefix(':')?.split(':').nth(1));
    known.unwrap_or(group).parse().map_err(|_| VdeFailure(format!("group {group} does not exist")))
}

/// Returns the path of the run directory: in the folder if the paths of the sockets in the run directory are short
/// enough; otherwise in `XDG_RUNTIME_DIR` or `/tmp`, with a hash of the folder's path in the directory's name.
fn run_dir(folder: &Path) -> Result<PathBuf, VdeFailure> {
    let inside = folder.join(RUN_DIR);
    let longest = CONTROL_SOCKET.len().max(ATTACH_SOCKET.len()) + 1;
    if inside.as_os_str().len() + longest <= LONGEST_SOCKET {
        return Ok(inside);
    }
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && is_own(dir));
    let base = of_user.unwrap_or_else(|| PathBuf::from("/tmp"));
    let name = folder.as_os_str().as_encoded_bytes();
    // The hash is FNV-1a, which yields the same name at each start.
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let user = rustix::process::geteuid().as_raw();
    let dir = base.join(format!("netvale-vde-{user}-{hash:016x}"));
    if dir.as_os_str().len() + longest > LONGEST_SOCKET {
        return Err(VdeFailure(format!(
            "{}: the path is too long for sockets; set XDG_RUNTIME_DIR to a shorter path",
            dir.display()
        )));
    }
    Ok(dir)
}

/// Creates a folder that only this user can access. If the folder exists, it must already be inaccessible to others.
fn make_private(dir: &Path) -> Result<(), VdeFailure> {
    let failed = VdeFailure::step(format!("cannot create {}", dir.display()));
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
        done => return done.map_err(failed),
    }
    let is_ours = |meta: &Metadata| {
        meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0
    };
    match std::fs::symlink_metadata(dir) {
        Ok(meta) if is_ours(&meta) => Ok(()),
        _ => Err(VdeFailure(format!("{} is not a folder that only this user can access: remove it", dir.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(folder: &Path) -> VdeOptions {
        VdeOptions { sock: Some(folder.to_owned()), ..VdeOptions::default() }
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    /// Objective: a new folder has the mode that VDE derives from the mode of the socket; an existing folder keeps its
    /// mode, unless `--dirmode` sets another.
    #[test]
    fn a_folder_has_vdes_mode() {
        for (socket, folder) in [(0o600, 0o2700), (0o660, 0o2770), (0o666, 0o2777), (0o604, 0o2707)] {
            assert_eq!(dirmode(socket), folder, "{socket:o}");
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ctl");
        let place = SwitchPlace::make(&VdeOptions { mode: 0o660, ..at(&folder) }).unwrap();
        // The run directory inherits the set-group-ID bit, which the mask removes.
        assert_eq!((mode(&folder), mode(&place.run_dir) & 0o777), (0o2770, 0o700));
        SwitchPlace::make(&at(&folder)).unwrap();
        assert_eq!(mode(&folder), 0o2770);
        SwitchPlace::make(&VdeOptions { dirmode: Some(0o711), ..at(&folder) }).unwrap();
        assert_eq!(mode(&folder), 0o711);
        place.remove();
        assert!(!folder.exists());
    }

    /// Objective: if other programs have files in the folder, the files and the folder stay.
    #[test]
    fn files_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ctl");
        let place = SwitchPlace::make(&at(&folder)).unwrap();
        std::fs::write(folder.join("notes"), "x").unwrap();
        place.remove();
        assert!(folder.join("notes").exists() && !place.run_dir.exists());
    }

    /// Objective: a plain file, a folder whose parent does not exist and a path that is too long are refused, and the
    /// error names the path. A refused start leaves no files.
    #[test]
    fn places_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let long = dir.path().join("x".repeat(120));
        for (path, word) in [(&file, "is not a"), (&dir.path().join("no/ctl"), "cannot create"), (&long, "at most")] {
            let why = SwitchPlace::make(&at(path)).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let why = SwitchPlace::make(&VdeOptions { group: Some("no such".into()), ..at(&dir.path().join("ctl")) });
        assert!(why.unwrap_err().to_string().contains("group no such does not exist"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// Objective: if the folder's path is too long for the daemon's sockets, the run directory is outside the folder,
    /// at the same path for each start.
    #[test]
    fn a_long_path_has_its_run_directory_elsewhere() {
        let short = Path::new("/tmp/x/ctl");
        assert_eq!(run_dir(short).unwrap(), short.join(RUN_DIR));
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(90)));
        let elsewhere = run_dir(&long).unwrap();
        assert!(!elsewhere.starts_with(&long) && elsewhere == run_dir(&long).unwrap(), "{}", elsewhere.display());
        assert_ne!(run_dir(&PathBuf::from(format!("/tmp/{}", "y".repeat(90)))).unwrap(), elsewhere);
    }
}
