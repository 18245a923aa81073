//! The text after the colon of kinds with a socket.

use super::{AfterColon, fitting, stem};
use crate::cursor::{Cursor, Parsed};
use crate::text::{Ident, SocketPath};

impl AfterColon for SocketPath {
    fn read(cursor: &mut Cursor<'_>) -> Parsed<Self> {
        SocketPath::take(cursor, "a socket's path that begins with '/'")
    }

    fn port_name(&self, _prefix: &str) -> Ident {
        fitting(stem(self.as_str()))
    }

    fn files(&self) -> Vec<&str> {
        vec![self.as_str()]
    }
}
