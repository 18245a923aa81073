//! TCP by iperf3 between two network namespaces over the Linux bridge with veth: the peer of TAP ports on a VALE
//! switch.
//!
//! The bridge with TAPs is no peer here: a TAP's other end is a file that some program must read and write, so two
//! namespaces joined by "the bridge with TAPs" are joined by that program's copying loop, and its figure would be that
//! loop's, not the kernel's. veth is how the kernel itself attaches a namespace to its bridge, and the faster of the
//! two.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::case::{Case, Unit};
use crate::contender::{Contender, Env, Sample, Session};
use crate::disturb::Watch;
use crate::error::{BenchError, Result, Skip};
use crate::interrupt;
use crate::sys::child::{self, Child};
use crate::sys::netns::Netns;
use crate::{pin, sys};

const START_LIMIT: Duration = Duration::from_secs(10);
/// What a server says when it waits for a client.
const READY: &str = "Server listening";

/// The peer.
#[derive(Clone, Copy, Debug)]
pub struct BridgedTcp;

impl Contender for BridgedTcp {
    fn name(&self) -> &str {
        "linux-bridge-veth-tcp"
    }

    fn about(&self) -> &str {
        "iperf3 TCP between two namespaces over the Linux bridge with veth; one stream"
    }

    fn fits(&self, case: &Case) -> bool {
        case.scenario == "tap" && case.unit == Unit::Gbps
    }

    fn available(&self, env: &Env) -> std::result::Result<(), Skip> {
        available(env)
    }

    fn start(&self, _case: &Case, env: &Env) -> Result<Box<dyn Session>> {
        let (client_core, server_core) = env.two_cores()?;
        let hub = Netns::new()?;
        hub.ip("link add br0 type bridge")?;
        hub.ip("link set br0 up")?;
        let client = attached(&hub, 1)?;
        let server = attached(&hub, 2)?;
        let tcp = Iperf::start(client, server, "10.77.0.2", (client_core, server_core))?;
        Ok(Box::new(Tcp { iperf: tcp, _hub: hub }))
    }
}

/// Whether TCP between two namespaces can be measured here.
///
/// # Errors
/// [`Skip`] if something is missing; it says what.
pub fn available(env: &Env) -> std::result::Result<(), Skip> {
    sys::need_program("iperf3", "iperf3")?;
    sys::need_root("network namespaces")?;
    sys::need_program("ip", "iproute2")?;
    pin::need(2, &env.cores)
}

/// A namespace with a veth into `hub`'s bridge and the address 10.77.0.`host`.
fn attached(hub: &Netns, host: u8) -> Result<Netns> {
    let namespace = Netns::new()?;
    hub.ip(&format!("link add v{host} type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v{host} master br0 up"))?;
    namespace.ip(&format!("addr add 10.77.0.{host}/24 dev eth0"))?;
    namespace.ip("link set eth0 up")?;
    Ok(namespace)
}

struct Tcp {
    iperf: Iperf,
    _hub: Netns,
}

impl Session for Tcp {
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        self.iperf.measure(window)
    }

    fn cores(&self) -> String {
        format!("client {}, server {}; the kernel's work on the same", self.iperf.cores.0, self.iperf.cores.1)
    }

    fn touched(&self) -> bool {
        true
    }
}

/// An iperf3 server in one namespace, and a client to run in another: for whatever lies between the two.
pub struct Iperf {
    client: Netns,
    server: Child,
    address: String,
    cores: (usize, usize),
    beside: Vec<u32>,
    // The server lives in its namespace; folder and namespace go after it.
    _server_namespace: Netns,
    _folder: tempfile::TempDir,
}

impl Iperf {
    /// Starts the server in `server`, reached from `client` at `address`; `cores` are the client's and the server's.
    ///
    /// # Errors
    /// iperf3 does not start.
    pub fn start(client: Netns, server: Netns, address: &str, cores: (usize, usize)) -> Result<Self> {
        let folder = sys::scratch("iperf3")?;
        let mut command = server.command("stdbuf");
        command.args(["-oL", "iperf3", "--server", "--affinity", &cores.1.to_string()]);
        let process = Child::spawn(command, &folder.path().join("server.log"))?;
        process.expect(READY, START_LIMIT)?;
        Ok(Self {
            client,
            server: process,
            address: address.to_owned(),
            cores,
            beside: Vec::new(),
            _server_namespace: server,
            _folder: folder,
        })
    }

    /// Process `pid`, too, belongs to what is measured.
    #[must_use]
    pub fn beside(mut self, pid: u32) -> Self {
        self.beside.push(pid);
        self
    }

    /// One client run of about `window` (iperf3 counts whole seconds), in Gbit/s received.
    ///
    /// # Errors
    /// The client fails, or its report cannot be read.
    pub fn measure(&mut self, window: Duration) -> Result<Sample> {
        let seconds = window.as_secs_f64().ceil().max(1.0);
        let mut processes = self.beside.clone();
        processes.push(self.server.pid());
        let watch = Watch::start(&processes, &[]);
        let mut command: Command = self.client.command("iperf3");
        command.args(["--json", "--client", &self.address, "--time", &seconds.to_string()]);
        command.args(["--affinity", &self.cores.0.to_string()]);
        let report = child::run(&mut command);
        // Ctrl-C does not reach the client, which ends by itself.
        interrupt::check()?;
        let disturbance = watch.finish();
        let received = received_gbps(&report?)?;
        // What lies between may be stopped next, and with it the end of this test's connections: the server would
        // refuse the next client.
        self.server.expect(READY, START_LIMIT)?;
        Ok(Sample::new(received, disturbance))
    }
}

#[derive(Deserialize)]
struct Report {
    end: End,
}

#[derive(Deserialize)]
struct End {
    sum_received: Received,
}

#[derive(Deserialize)]
struct Received {
    bits_per_second: f64,
}

/// The receiver's rate in iperf3's JSON report, Gbit/s.
fn received_gbps(report: &str) -> Result<f64> {
    let parsed: Report = serde_json::from_str(report).map_err(|error| BenchError::Unreadable {
        program: "iperf3".into(),
        what: format!("the received rate ({error})"),
        output: child::tail(report).to_owned(),
    })?;
    let rate = parsed.end.sum_received.bits_per_second;
    if rate > 0.0 { Ok(rate / 1e9) } else { Err(BenchError::NoTraffic("iperf3".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the received rate of a report is found; a report of a failure is an error that shows it.
    #[test]
    fn reports() {
        let good =
            r#"{"start":{},"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8.5e9}}}"#;
        assert_eq!(received_gbps(good).expect("a report"), 8.5);
        let bad = r#"{"start":{},"error":"unable to connect"}"#;
        assert!(received_gbps(bad).expect_err("no figure").to_string().contains("unable to connect"));
        assert!(received_gbps(r#"{"end":{"sum_received":{"bits_per_second":0}}}"#).is_err());
    }
}
