//! The networks around a gateway: the guest's network, the host's network, and the network outside.

use std::net::{TcpListener, TcpStream};

use tempfile::TempDir;

use crate::prelude::*;

/// The server's address, beyond the host's network.
pub const SERVER: &str = "198.51.100.1";
/// The host's address, at which the guest's published port can be reached.
pub const HOST: &str = "192.0.2.1";
/// The port on which servers listen, outside and in the guest: iperf3's default port.
pub const PORT: u16 = 5201;
/// The server's port to which the guest connects to check that it reaches the outside.
const HELLO: u16 = 5000;
/// The guest's interface.
pub const INTERFACE: &str = "nv0";
const WAY_OUT: Duration = Duration::from_secs(15);
const ATTEMPT: Duration = Duration::from_millis(500);

/// The namespaces of guest, host and server.
pub struct Network {
    /// The guest.
    pub guest: Netns,
    /// The host, where the gateway runs.
    pub host: Netns,
    /// The server.
    pub outside: Netns,
    /// The CPU of the gateway's processes.
    pub core: usize,
    folder: TempDir,
    hello: TcpListener,
}

impl Network {
    /// Creates the namespaces, without a gateway between guest and host.
    pub fn new(cores: Cores) -> Result<Self> {
        let [guest, host, outside] = [Netns::silent()?, Netns::silent()?, Netns::silent()?];
        for namespace in [&guest, &host, &outside] {
            namespace.set("ipv4/ip_local_port_range", "10000 65000")?;
        }
        host.ip(&format!("link add up0 type veth peer name down0 netns {}", outside.path()))?;
        host.set_up("up0", &format!("{HOST}/24"))?;
        outside.set_up("lo", &format!("{SERVER}/32"))?;
        outside.set_up("down0", "192.0.2.2/24")?;
        host.ip("route add default via 192.0.2.2")?;
        let hello = || TcpListener::bind((SERVER, HELLO)).map_err(BenchError::io("listening"));
        let hello = outside.inside(hello)?;
        let folder = sys::scratch("gateway")?;
        let this = Self { guest, host, outside, core: cores.1, folder, hello };
        let written = std::fs::write(this.path("resolv.conf"), format!("nameserver {SERVER}\n"));
        written.map(|()| this).map_err(BenchError::io("writing resolv.conf"))
    }

    /// Returns a path in the network's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command that runs on the host, on the gateway's CPU. The program finds the address of the DNS server
    /// in `/etc/resolv.conf`, and the guest's namespace at [`Network::guest_file`]. (Programs that drop privileges may
    /// not open the descriptors of another process.)
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.host.command("unshare");
        let script = "mount --bind \"$0\" /etc/resolv.conf && touch \"$2\" && mount -c --bind \"$1\" \"$2\" && \
            shift 2 && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script]).arg(self.path("resolv.conf"));
        command.arg(self.guest.path()).arg(self.guest_file());
        command.args(["taskset", "-c", &self.core.to_string()]).arg(program);
        command
    }

    /// Returns the path of the guest's namespace for programs on the host.
    pub fn guest_file(&self) -> PathBuf {
        self.path("guest")
    }

    /// Starts a program on the host.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Result<Rc<Child>> {
        let mut command = self.command(Path::new(program));
        command.args(arguments);
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Child::spawn(command, &self.log(&name)).map(Rc::new)
    }

    /// Returns the path of a program's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.log"))
    }

    /// Gives the guest's interface an address and a route to the outside.
    pub fn set_up_guest(&self, address: &str, router: &str, mtu: u32) -> Result<()> {
        self.guest.ip(&format!("addr replace {address}/24 dev {INTERFACE}"))?;
        self.guest.ip(&format!("link set {INTERFACE} mtu {mtu} up"))?;
        self.guest.ip(&format!("route replace default via {router}"))
    }

    /// Waits until the guest reaches the server.
    pub fn wait_for_way_out(&self, who: &str) -> Result<()> {
        let server = std::net::SocketAddr::from(([198, 51, 100, 1], HELLO));
        let attempt = || Ok(TcpStream::connect_timeout(&server, ATTEMPT).is_ok().then_some(()));
        let found = interrupt::poll_until(WAY_OUT, || self.guest.inside(attempt))?;
        while self.hello.set_nonblocking(true).is_ok() && self.hello.accept().is_ok() {}
        found.ok_or_else(|| BenchError::failed(who, "the guest does not reach the server", &self.logs()))
    }

    fn logs(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = files.filter(|path| path.extension().is_some_and(|end| end == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }
}
