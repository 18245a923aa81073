//! A refusal: netmap's errno, and a sentence with the reason and the remedy.

use std::fmt;

use netvale_afxdp::NicError;
use netvale_fdio::state::BadState;
use netvale_guest::passthrough::PassthroughError;
use netvale_mem::RegionError;
use netvale_switch::AttachError;
use netvale_tap::{AdoptError, TapError};
use rustix::io::Errno;

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The errno that netmap would return.
    pub errno: i32,
    /// One line: what is wrong, and what to do.
    pub text: String,
    /// Whether the request's offsets option (`NETMAP_REQ_OPT_OFFSETS`) caused the refusal.
    pub offsets_at_fault: bool,
    /// Whether the file that the program provided for its region (`NETMAP_REQ_OPT_EXTMEM`) caused the refusal, rather
    /// than the request itself.
    pub file_at_fault: bool,
}

impl Refusal {
    /// Creates a refusal with an errno.
    pub fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno: errno.raw_os_error(), text: text.into(), offsets_at_fault: false, file_at_fault: false }
    }

    /// Creates a refusal that is caused by the file that a client provided for its region.
    pub fn of_file(errno: Errno, why: &str) -> Refusal {
        let text = format!("the program's file cannot hold a region: {why}");
        Refusal { file_at_fault: true, ..Refusal::new(errno, text) }
    }

    /// Creates a refusal for a case that should be impossible.
    pub fn internal(what: &str) -> Refusal {
        Refusal::new(Errno::IO, format!("internal error: {what}; please report it"))
    }

    /// Splits the text into fault and advice. Advice follows the last semicolon or, if there is no semicolon, the last
    /// colon. A colon after a single word (a name), or before a capital letter (the kernel's message), does not start
    /// advice.
    pub fn parts(&self) -> (&str, Option<&str>) {
        let is_advice = |(what, hint): &(&str, &str)| what.contains(' ') && !hint.starts_with(char::is_uppercase);
        match self.text.rsplit_once("; ").or_else(|| self.text.rsplit_once(": ").filter(is_advice)) {
            Some((what, hint)) => (what, Some(hint)),
            None => (&self.text, None),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns an error, a [`Refusal`] with netmap's errno.
///
/// # Errors
/// Always.
pub(crate) fn refuse<T>(errno: Errno, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(errno, text))
}

impl From<RegionError> for Refusal {
    fn from(e: RegionError) -> Self {
        let errno = match e {
            RegionError::Layout(_) | RegionError::Slots { .. } => Errno::INVAL,
            RegionError::Memory { .. } | RegionError::Exhausted { .. } => Errno::NOMEM,
            RegionError::Slow => Errno::TIMEDOUT,
        };
        let hint = match e {
            RegionError::Memory { source: Errno::FBIG, .. } => {
                "; raise the daemon's limit of file sizes (LimitFSIZE= of its unit, ulimit -f)"
            }
            _ => "",
        };
        Refusal::new(errno, format!("{e}{hint}"))
    }
}

impl From<AttachError> for Refusal {
    fn from(e: AttachError) -> Self {
        let errno = match e {
            AttachError::Full(_) => Errno::NOSPC,
            AttachError::Exists { .. } => Errno::EXIST,
            AttachError::NoSuchPort { .. } => Errno::NXIO,
        };
        Refusal::new(errno, e.to_string())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(e: std::io::Error) -> Self {
        let errno = e.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        Refusal {
            errno,
            text: format!("the daemon is out of descriptors or memory: {e}; raise its limits (ulimit -n)"),
            offsets_at_fault: false,
            file_at_fault: false,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(e: Errno) -> Self {
        std::io::Error::from(e).into()
    }
}

impl From<BadState> for Refusal {
    fn from(bad: BadState) -> Self {
        Refusal::new(bad.errno, bad.to_string())
    }
}

impl From<NicError> for Refusal {
    fn from(e: NicError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
}

impl From<PassthroughError> for Refusal {
    fn from(e: PassthroughError) -> Self {
        Refusal::new(e.errno(), e.to_string())
    }
}

impl From<TapError> for Refusal {
    fn from(e: TapError) -> Self {
        let errno = match &e {
            TapError::NoTun(errno) | TapError::Step { source: errno, .. } => *errno,
            TapError::Permission(_) => Errno::PERM,
            TapError::Busy(_) => Errno::BUSY,
            TapError::Queues(_) | TapError::OneQueue(_) | TapError::OtherKind(..) => Errno::INVAL,
        };
        Refusal::new(errno, e.to_string())
    }
}

impl From<AdoptError> for Refusal {
    fn from(e: AdoptError) -> Self {
        Refusal::new(Errno::INVAL, format!("the received descriptor is not a usable TAP queue: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: text after a name or before the kernel's message is not taken for advice.
    #[test]
    fn advice_is_told_from_names_and_kernel_messages() {
        for (what, then, hint) in [
            ("switch vale0 already has a port a", ": ", Some("choose another name, or detach that port first")),
            (
                "only root and the daemon's own user may attach tap:nv0",
                "; ",
                Some("'netvale up --allow-tap' admits others"),
            ),
            ("vale0:a: a persistent port has an interface's name", "", None),
            ("host rings of eth0: Permission denied (os error 13)", "", None),
            ("ring 9 does not exist", "", None),
        ] {
            let text = format!("{what}{then}{}", hint.unwrap_or_default());
            assert_eq!(Refusal::new(Errno::INVAL, text.clone()).parts(), (what, hint), "{text}");
        }
    }
}
