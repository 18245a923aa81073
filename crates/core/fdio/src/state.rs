//! The *state* that a process hands over so that another process can continue its ports and queues: structures with
//! descriptors in some of their fields.
//!
//! A structure that holds state has a field of type [`Fd`] for each descriptor. [`State::of`] serialises the structure
//! as JSON and a list of descriptors, which a message over a socket carries; each [`Fd`] becomes its index in the list.
//! [`State::read`] restores each descriptor in its field. Sender and receiver only have to agree on the structure's
//! fields. This module refuses a forged state: one with a descriptor missing, named twice or left over.

use std::cell::RefCell;
use std::fmt::{self, Debug, Display, Formatter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A descriptor in a state. Clones share the descriptor.
#[derive(Clone)]
pub struct Fd(FdSlot);

#[derive(Clone)]
enum FdSlot {
    /// Owned by the state alone.
    Own(Arc<OwnedFd>),
    /// Shared with code that continues to use the descriptor.
    Shared(Arc<dyn AsFd + Send + Sync>),
}

impl Fd {
    /// Creates a copy of a descriptor.
    ///
    /// # Errors
    /// The system error if the process is out of descriptors.
    pub fn copy_of(fd: impl AsFd) -> std::io::Result<Fd> {
        fd.as_fd().try_clone_to_owned().map(Fd::from)
    }

    /// Creates copies of several descriptors.
    ///
    /// # Errors
    /// As [`Fd::copy_of`].
    pub fn copies_of<T: AsFd>(fds: impl IntoIterator<Item = T>) -> std::io::Result<Vec<Fd>> {
        fds.into_iter().map(Fd::copy_of).collect()
    }

    /// Shares a descriptor with code that continues to use it; [`Fd::take`] then copies the descriptor.
    pub fn shared(fd: &Arc<impl AsFd + Send + Sync + 'static>) -> Fd {
        Fd(FdSlot::Shared(Arc::clone(fd) as Arc<dyn AsFd + Send + Sync>))
    }

    /// Takes the descriptor.
    ///
    /// # Errors
    /// The system error if the descriptor is shared, and the process is out of descriptors.
    pub fn take(self) -> std::io::Result<OwnedFd> {
        match self.0 {
            FdSlot::Own(fd) => Arc::try_unwrap(fd).or_else(|fd| fd.try_clone()),
            FdSlot::Shared(fd) => fd.as_fd().try_clone_to_owned(),
        }
    }

    /// Takes several descriptors.
    ///
    /// # Errors
    /// As [`Fd::take`].
    pub fn take_all(fds: impl IntoIterator<Item = Fd>) -> std::io::Result<Vec<OwnedFd>> {
        fds.into_iter().map(Fd::take).collect()
    }
}

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Fd {
        Fd(FdSlot::Own(Arc::new(fd)))
    }
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            FdSlot::Own(fd) => fd.as_fd(),
            FdSlot::Shared(fd) => fd.as_fd(),
        }
    }
}

/// Two values are equal if they hold the same descriptor; it is not enough that their descriptors refer to the same
/// file.
impl PartialEq for Fd {
    fn eq(&self, other: &Fd) -> bool {
        match (&self.0, &other.0) {
            (FdSlot::Own(a), FdSlot::Own(b)) => Arc::ptr_eq(a, b),
            (FdSlot::Shared(a), FdSlot::Shared(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Fd {}

impl Debug for Fd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Fd({:?})", self.as_fd())
    }
}

/// The list of descriptors of the state that the calling thread writes or reads.
enum FdList {
    Written(Vec<Fd>),
    Read(Vec<Option<Fd>>),
}

thread_local! {
    static BESIDE: RefCell<Option<FdList>> = const { RefCell::new(None) };
}

/// Restores the previous list on drop.
struct OuterFdList(Option<FdList>);

impl Drop for OuterFdList {
    fn drop(&mut self) {
        BESIDE.set(self.0.take());
    }
}

/// Runs `what`, which writes or reads a state, with `list` as the calling thread's list of descriptors. Returns the
/// result of `what` and the list.
fn beside<T>(list: FdList, what: impl FnOnce() -> T) -> (T, Option<FdList>) {
    let _outer = OuterFdList(BESIDE.replace(Some(list)));
    let done = what();
    (done, BESIDE.take())
}

impl Serialize for Fd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = BESIDE.with_borrow_mut(|list| {
            let Some(FdList::Written(fds)) = list else { return None };
            fds.push(self.clone());
            Some(fds.len() - 1)
        });
        number.ok_or_else(|| S::Error::custom("a descriptor can be serialised only in a state"))?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fd, D::Error> {
        let number = usize::deserialize(deserializer)?;
        let fd = BESIDE.with_borrow_mut(|list| match list {
            Some(FdList::Read(fds)) => fds.get_mut(number)?.take(),
            _ => None,
        });
        fd.ok_or_else(|| D::Error::custom(format!("descriptor {number} is missing, or is named twice")))
    }
}

/// Serialises a state as a message: returns the message's bytes and descriptors.
///
/// # Errors
/// [`BadState`] if the structure cannot be written as JSON.
pub fn to_bytes(said: &impl Serialize) -> Result<(Vec<u8>, Vec<Fd>), BadState> {
    write_with(|| serde_json::to_vec(said))
}

/// Reads a state from a message: all of it, or nothing.
///
/// # Errors
/// [`BadState`] if the fields do not match `T`, or a descriptor is missing, named twice or left over.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<T, BadState> {
    read_with(fds.into_iter().map(Fd::from), || serde_json::from_slice(bytes))
}

fn write_with<T>(write: impl FnOnce() -> serde_json::Result<T>) -> Result<(T, Vec<Fd>), BadState> {
    let (written, list) = beside(FdList::Written(Vec::new()), write);
    let written = written.map_err(BadState::new)?;
    match list {
        Some(FdList::Written(fds)) => Ok((written, fds)),
        _ => Err(BadState::new("no list of descriptors")),
    }
}

fn read_with<T>(
    fds: impl IntoIterator<Item = Fd>,
    read: impl FnOnce() -> serde_json::Result<T>,
) -> Result<T, BadState> {
    let (read, list) = beside(FdList::Read(fds.into_iter().map(Some).collect()), read);
    let read = read.map_err(BadState::new)?;
    match list {
        Some(FdList::Read(fds)) if fds.iter().all(Option::is_none) => Ok(read),
        _ => Err(BadState::new("a descriptor is left over")),
    }
}

/// A serialised state: JSON, and a list of descriptors to which the JSON refers by index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    said: Value,
    fds: Vec<Fd>,
}

impl State {
    /// Serialises a state.
    ///
    /// # Errors
    /// [`BadState`] if the structure cannot be written as JSON.
    pub fn of(said: &impl Serialize) -> Result<State, BadState> {
        let (said, fds) = write_with(|| serde_json::to_value(said))?;
        Ok(State { said, fds })
    }

    /// Creates a state from its JSON and its descriptors, which arrived as one message.
    pub fn from_parts(said: Value, fds: impl IntoIterator<Item = OwnedFd>) -> State {
        State { said, fds: fds.into_iter().map(Fd::from).collect() }
    }

    /// The state's JSON, and its descriptors in the order of their indexes.
    pub fn into_parts(self) -> (Value, Vec<Fd>) {
        (self.said, self.fds)
    }

    /// Reads the state: all of it, or nothing.
    ///
    /// # Errors
    /// [`BadState`] if the fields do not match `T`, or a descriptor is missing, named twice or left over.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, BadState> {
        read_with(self.fds, || serde_json::from_value(self.said))
    }
}

/// The reason why a state cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadState {
    /// The error number; `EINVAL` if the kernel reported none.
    pub errno: Errno,
    why: String,
}

impl BadState {
    /// Creates the error `EINVAL`, for a state that is inconsistent or does not match the expected structure.
    pub fn new(why: impl Display) -> BadState {
        BadState::with(Errno::INVAL, why)
    }

    /// Creates an error with the number that the kernel or another part of the program reported.
    pub fn with(errno: Errno, why: impl Display) -> BadState {
        BadState { errno, why: why.to_string() }
    }

    /// Prefixes the message with `part`, the name of the faulty part of the state.
    #[must_use]
    pub fn of(self, part: impl Display) -> BadState {
        BadState { why: format!("{part}: {}", self.why), ..self }
    }
}

impl Display for BadState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadState {}

impl From<Errno> for BadState {
    fn from(errno: Errno) -> BadState {
        BadState { errno, why: errno.to_string() }
    }
}

impl From<std::io::Error> for BadState {
    fn from(e: std::io::Error) -> BadState {
        if let Some(bad) = e.get_ref().and_then(|inner| inner.downcast_ref::<BadState>()) {
            return bad.clone();
        }
        BadState { errno: Errno::from_io_error(&e).unwrap_or(Errno::INVAL), why: e.to_string() }
    }
}

impl From<BadState> for std::io::Error {
    fn from(bad: BadState) -> std::io::Error {
        std::io::Error::new(std::io::Error::from(bad.errno).kind(), bad)
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Port {
        name: String,
        bells: Vec<[Fd; 2]>,
        socket: Option<Fd>,
    }

    /// A state that contains another state.
    #[derive(Debug, Serialize, Deserialize)]
    struct Message {
        lock: Fd,
        port: State,
    }

    fn some() -> Fd {
        pipe().unwrap().0.into()
    }

    fn inode(fd: impl AsFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    fn sent(state: State) -> State {
        let (said, fds) = state.into_parts();
        State::from_parts(said, Fd::take_all(fds).unwrap())
    }

    /// Objective: each descriptor is restored in its field, including the fields of nested states.
    #[test]
    fn each_descriptor_in_its_place() {
        let port = Port { name: "a".to_owned(), bells: vec![[some(), some()], [some(), some()]], socket: Some(some()) };
        let inodes = |port: &Port| port.bells.iter().flatten().chain(&port.socket).map(inode).collect::<Vec<_>>();
        let before = inodes(&port);
        let message = Message { lock: some(), port: State::of(&port).unwrap() };
        let lock = inode(&message.lock);
        let arrived: Message = sent(State::of(&message).unwrap()).read().unwrap();
        assert_eq!(inode(&arrived.lock), lock);
        let port: Port = arrived.port.read().unwrap();
        assert_eq!((inodes(&port), port.name.as_str()), (before, "a"));
    }

    /// Objective: a state with a descriptor that is missing, left over, named twice or outside the list is refused as a
    /// whole, and so is another structure's state.
    #[test]
    fn forged_states_are_refused() {
        let port = Port { name: "a".to_owned(), bells: vec![[some(), some()]], socket: None };
        let (said, fds) = State::of(&port).unwrap().into_parts();
        let read = |said: &Value, count: usize| {
            let fds = fds.iter().cycle().take(count).map(|fd| fd.as_fd().try_clone_to_owned().unwrap());
            State::from_parts(said.clone(), fds).read::<Port>()
        };
        assert!(read(&said, 2).is_ok());
        for count in [0, 1, 3] {
            assert_eq!(read(&said, count).unwrap_err().errno, Errno::INVAL, "{count} descriptors");
        }
        for numbers in [json!([0, 0]), json!([1, 2]), json!([0, -1]), json!([0, "1"]), json!([0]), json!([0, null])] {
            let mut forged = said.clone();
            forged["bells"][0] = numbers;
            read(&forged, 2).unwrap_err();
        }
        read(&json!({"name": "a"}), 0).unwrap_err();
    }

    /// Objective: a shared descriptor is copied only when it is taken, and descriptors can be serialised only in
    /// states.
    #[test]
    fn a_shared_descriptor_is_copied_only_when_sent() {
        let fd = Arc::new(pipe().unwrap().0);
        let shared = Fd::shared(&fd);
        assert_eq!(shared, shared.clone());
        assert_ne!(shared, Fd::copy_of(&fd).unwrap());
        assert_eq!(inode(shared.take().unwrap()), inode(&fd));
        assert!(serde_json::to_value(some()).is_err());
        assert!(serde_json::from_value::<Fd>(json!(0)).is_err());
    }

    /// Objective: an error number of the kernel survives the conversion of a `BadState` to `std::io::Error` and back.
    #[test]
    fn errors_keep_their_numbers() {
        let bad = BadState::from(Errno::MFILE).of("a queue");
        assert_eq!(BadState::from(std::io::Error::from(bad.clone())), bad);
        assert_eq!(BadState::from(std::io::Error::from(Errno::MFILE)).errno, Errno::MFILE);
    }
}
