//! A page that outlives a process which is killed: what changes too often for the service manager to be told. The
//! process writes it, and the next one reads it, checking everything.
//!
//! | word | what |
//! |---|---|
//! | 0 | the form of the page |
//! | 1 | the number of the message that is being answered, and a bit that says so |
//! | 2, 3 | how often the client has changed what the service manager keeps |
//! | from 16 | the device's own |

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netvale_fdio::state::{BadState, Fd};
use netvale_mem::Mapping;
use netvale_mem::mapping::{Pages, sealed_memfd};
use netvale_mem::words::Words;

/// The form: a mark, and its version.
const FORM: u32 = 0x4e76_0001;
/// Places of words.
const ANSWERING: usize = 1;
const CHANGES: usize = 2;
/// The device's first word.
pub const DEVICE_AT: usize = 16;
/// A message is being answered.
const IS_ANSWERING: u32 = 1 << 16;

/// A page.
#[derive(Debug)]
pub struct Page {
    fd: OwnedFd,
    words: Words,
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Page {
    /// Makes a page for a device that wants `words` words for itself.
    ///
    /// # Errors
    /// When the process is out of descriptors or memory.
    pub fn new(words: usize) -> rustix::io::Result<Page> {
        let count = DEVICE_AT + words;
        let (fd, map, _) = sealed_memfd("netvale-kept", 4 * count as u64, Pages::Ordinary)?;
        let words = Words::new(&Arc::new(map), 0, count).ok_or(rustix::io::Errno::NOMEM)?;
        words.store(0, FORM);
        Ok(Page { fd, words })
    }

    /// The page of another process.
    ///
    /// # Errors
    /// [`BadState`] if it is none of such a device.
    pub fn restore(fd: Fd, words: usize) -> Result<Page, BadState> {
        let bad = || BadState::new("the page with what changes often is not what it should be");
        let fd = fd.take()?;
        let count = DEVICE_AT + words;
        let map = Mapping::map(fd.as_fd(), 4 * count).map_err(|_| bad())?;
        let words = Words::new(&Arc::new(map), 0, count).ok_or_else(bad)?;
        if words.load(0) == FORM { Ok(Page { fd, words }) } else { Err(bad()) }
    }

    /// Its words, the device's from [`DEVICE_AT`] on.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// The message whose answer is being sent, or was sent, but which is still in the socket.
    pub(crate) fn answering(&self) -> Option<u16> {
        let word = self.words.load(ANSWERING);
        (word & IS_ANSWERING != 0).then_some(word as u16)
    }

    /// Changes it.
    pub(crate) fn set_answering(&self, id: Option<u16>) {
        self.words.store(ANSWERING, id.map_or(0, |id| IS_ANSWERING | u32::from(id)));
    }

    /// How often the client had changed what is kept when it was last answered.
    pub(crate) fn changes(&self) -> u64 {
        self.words.load_wide(CHANGES)
    }

    pub(crate) fn set_changes(&self, changes: u64) {
        self.words.store_wide(CHANGES, changes);
    }
}
