//! gvproxy, the user-space gateway of gvisor-tap-vsock, with the switch between its guests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::prelude::*;
use crate::sys::trees;

/// What gvproxy needs to run.
pub const NEEDS: &[Need] = &[Need::Found(|| find().map(drop))];
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time within which gvproxy turns a new connection into a port of its switch.
const CONNECTING: Duration = Duration::from_millis(300);

fn find() -> std::result::Result<PathBuf, Skip> {
    trees::tool("gvproxy").ok_or(Skip::NotBuilt("needs gvproxy: run scripts/install-deps.sh bench, with Go"))
}

/// A running gvproxy.
pub struct Gvproxy {
    /// The process.
    pub child: Rc<Child>,
    /// The socket to which a guest connects with a stream in QEMU's form.
    pub guest: PathBuf,
    control: PathBuf,
}

impl Gvproxy {
    /// Starts gvproxy, with its sockets in `folder`. `command` creates the command from the path of gvproxy's program.
    pub fn start(command: impl FnOnce(&Path) -> Command, folder: &Path, mtu: u32) -> Result<Self> {
        std::fs::create_dir(folder).map_err(BenchError::io("creating a folder"))?;
        let [control, guest] = ["control", "guest"].map(|name| folder.join(name));
        let mut command = command(&find()?);
        command.arg("-listen").arg(format!("unix://{}", control.display()));
        command.arg("-listen-qemu").arg(format!("unix://{}", guest.display()));
        command.args(["-mtu", &mtu.to_string()]);
        let child = Rc::new(Child::spawn(command, &folder.join("log"))?);
        let is_ready = || Ok((control.exists() && guest.exists()).then_some(()));
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        interrupt::poll_until(START_LIMIT, is_ready)?
            .ok_or_else(|| BenchError::failed("gvproxy", "it has made no sockets within 10 s", &log()))?;
        Ok(Self { child, guest, control })
    }

    /// Returns a function that connects further guests. (The socket `guest` accepts only one connection.)
    pub fn connector(&self) -> impl Fn() -> Result<UnixStream> + use<> {
        let control = self.control.clone();
        move || {
            let asked = UnixStream::connect(&control).and_then(|mut socket| {
                socket.write_all(b"POST /connect HTTP/1.1\r\nHost: gvproxy\r\n\r\n")?;
                Ok(socket)
            });
            // gvproxy sends no answer, and a byte that arrives before gvproxy has processed the request is lost.
            interrupt::sleep(CONNECTING)?;
            asked.map_err(BenchError::io("connecting to gvproxy"))
        }
    }

    /// Publishes the host's port `local` (as `ADDRESS:PORT`), which leads to the guest's port `remote`.
    pub fn publish(&self, local: &str, remote: &str) -> Result<()> {
        let body = serde_json::json!({ "local": local, "remote": remote, "protocol": "tcp" }).to_string();
        let head = format!("Host: gvproxy\r\nContent-Length: {}\r\n", body.len());
        let request = format!("POST /services/forwarder/expose HTTP/1.0\r\n{head}\r\n{body}");
        let mut answer = String::new();
        let asked = UnixStream::connect(&self.control).and_then(|mut socket| {
            socket.write_all(request.as_bytes())?;
            socket.read_to_string(&mut answer)
        });
        asked.map_err(BenchError::io("publishing a port with gvproxy"))?;
        let is_done = answer.split_whitespace().nth(1) == Some("200");
        if is_done { Ok(()) } else { Err(BenchError::unreadable("gvproxy", "status 200", &answer)) }
    }
}
