//! `vde:/DIR`: the socket folder of a VDE switch.

use std::fmt;

use super::{AfterColon, SpecKind, fitting, stem};
use crate::cursor::{Cursor, SpecResult};
use crate::text::{Ident, SocketPath};

/// Maximum length of the folder's path in bytes: with a socket's name in it (`/65535.0`), it must fit into an address
/// (unix(7)).
const MAX_FOLDER: usize = 99;

/// The kind `vde`: a VDE switch.
pub(super) const KIND: SpecKind = SpecKind {
    word: "VDE",
    pattern: Some("^vde:"),
    example: "vde:/run/vde.ctl",
    help: &[("vde:/DIR", "VDE sockets in this folder, like vde_switch's: a port for each plug")],
    takes: &["mtu", "peers", "socket_mode", "socket_user", "socket_group"],
    adjusts: &["mtu"],
    page: "reference/sockets.md",
};

/// The socket folder of a VDE switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VdeFolder {
    folder: SocketPath,
    control: String,
}

impl VdeFolder {
    /// Returns the folder's path, without a trailing slash.
    pub fn path(&self) -> &str {
        self.folder.as_str()
    }

    /// Returns the path of the control socket, to which plugs (VDE's clients) connect.
    pub fn control(&self) -> &str {
        &self.control
    }
}

impl AfterColon for VdeFolder {
    fn read(cursor: &mut Cursor<'_>) -> SpecResult<Self> {
        let start = cursor.pos();
        let text = SocketPath::take(cursor, "a folder's path that begins with '/'")?;
        let path = text.as_str().trim_end_matches('/');
        if path.len() > MAX_FOLDER {
            return Err(cursor.fail_at(start + MAX_FOLDER, format!("at most {MAX_FOLDER} bytes in a folder's path")));
        }
        let folder = SocketPath::parse(path).map_err(|_| cursor.fail_at(start, "a folder's path, not '/'"))?;
        Ok(VdeFolder { control: format!("{folder}/ctl"), folder })
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(stem(self.path()))
    }

    fn files(&self) -> Vec<&str> {
        vec![self.control()]
    }
}

impl fmt::Display for VdeFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.fmt(f)
    }
}
