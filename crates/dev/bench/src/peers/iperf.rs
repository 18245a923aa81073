//! TCP by iperf3 between two network namespaces over the Linux bridge with veth pairs: the peer of TAP ports on a VALE
//! switch.
//!
//! The bridge with TAPs is not a peer here. A TAP's other end is a file that some program must read and write, so the
//! figure would show the speed of the program's copying loop and not of the kernel. With veth pairs, the kernel itself
//! connects a namespace to its bridge, which is faster.

use serde_json::Value;

use crate::prelude::*;

/// What the peer needs to run.
pub const NEEDS: &[Need] = &[Need::Program("iperf3", "iperf3"), NETWORKS[0], NETWORKS[1]];
const START_LIMIT: Duration = Duration::from_secs(10);
/// The text that a server prints when it waits for a client.
const READY: &str = "Server listening";

/// Returns the peer: iperf3 over the Linux bridge.
pub fn peers() -> Vec<Contender> {
    contenders! {
        "linux-bridge-veth-tcp", "iperf3 TCP between two namespaces over the Linux bridge with veth; one stream";
        &[NEEDS, TWO], |case| case.scenario == "tap" && case.unit == Unit::Gbps, |_, cores| bridged(cores);
    }
}

fn bridged(cores: Cores) -> Result<Session> {
    let hub = Netns::new()?;
    hub.ip("link add br0 type bridge")?;
    hub.ip("link set br0 up")?;
    let tcp = Iperf::start([attached(&hub, 1)?, attached(&hub, 2)?], "10.77.0.2", cores, Vec::new())?;
    let words = format!("client on CPU {}, server on CPU {}, each with its kernel's work", cores.0, cores.1);
    Ok(tcp.session(words).keeping(hub))
}

/// Creates a namespace with a veth pair to `hub`'s bridge and the address 10.77.0.`host`.
fn attached(hub: &Netns, host: u8) -> Result<Netns> {
    let namespace = Netns::new()?;
    hub.ip(&format!("link add v{host} type veth peer name eth0 netns {}", namespace.path()))?;
    hub.ip(&format!("link set v{host} master br0 up"))?;
    namespace.set_up("eth0", &format!("10.77.0.{host}/24"))?;
    Ok(namespace)
}

/// An iperf3 server in one namespace, and the command to run a client in another namespace.
pub struct Iperf {
    client: Netns,
    server: Child,
    address: String,
    cores: Cores,
    beside: Vec<u32>,
    streams: u32,
    // The server runs in this namespace and writes to this folder, so both are dropped after it.
    _server_namespace: Netns,
    _folder: tempfile::TempDir,
}

impl Iperf {
    /// Starts the server in the second namespace, which the first namespace reaches at `address`; `cores` are the CPUs
    /// of the client and of the server. The processes `beside` also belong to the measurement.
    pub fn start([client, inside]: [Netns; 2], address: &str, cores: Cores, beside: Vec<u32>) -> Result<Self> {
        let folder = sys::scratch("iperf3")?;
        let mut command = inside.command("stdbuf");
        command.args(["-oL", "iperf3", "--server", "--affinity", &cores.1.to_string()]);
        let server = Child::spawn(command, &folder.path().join("server.log"))?;
        server.expect(READY, START_LIMIT)?;
        let address = address.to_owned();
        Ok(Self { client, server, address, cores, beside, streams: 1, _server_namespace: inside, _folder: folder })
    }

    /// Sets the number of simultaneous streams, instead of one.
    pub fn with_streams(self, streams: u32) -> Self {
        Self { streams, ..self }
    }

    /// Returns a session that measures the streams together.
    pub fn session(mut self, words: String) -> Session {
        Session::new(words, true, move |window| self.measure(window))
    }

    /// Runs a client for about `window` (iperf3 counts whole seconds). Returns the received rate in Gbit/s.
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let seconds = window.as_secs_f64().ceil().max(1.0);
        let mut processes = self.beside.clone();
        processes.push(self.server.pid());
        let watch = Watch::start(&processes, &[]);
        let mut command = self.client.command("iperf3");
        command.args(["--json", "--client", &self.address, "--time", &seconds.to_string()]);
        command.args(["--affinity", &self.cores.0.to_string(), "--parallel", &self.streams.to_string()]);
        let report = child::run(&mut command);
        // Ctrl-C does not reach the client, which ends by itself.
        interrupt::check()?;
        let disturbance = watch.finish();
        let received = received_gbps(&report?)?;
        // The set-up between client and server may be stopped next. If the server had not seen the end of this test by
        // then, it would refuse the next client.
        self.server.expect(READY, START_LIMIT)?;
        Ok(Sample::new(received, disturbance))
    }
}

/// Returns the receiver's rate in iperf3's JSON report, in Gbit/s.
fn received_gbps(report: &str) -> Result<f64> {
    let parsed = serde_json::from_str::<Value>(report).ok();
    let rate = parsed.and_then(|value| value.pointer("/end/sum_received/bits_per_second")?.as_f64());
    let rate = rate.ok_or_else(|| BenchError::unreadable("iperf3", "the received rate", report))?;
    if rate > 0.0 { Ok(rate / 1e9) } else { Err(BenchError::NoTraffic("iperf3".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the received rate is found in a report; the report of a failure is an error that shows it.
    #[test]
    fn the_received_rate_of_a_report_is_found() {
        let good =
            r#"{"start":{},"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8.5e9}}}"#;
        assert_eq!(received_gbps(good).expect("a report"), 8.5);
        let bad = r#"{"start":{},"error":"unable to connect"}"#;
        assert!(received_gbps(bad).expect_err("no figure").to_string().contains("unable to connect"));
        assert!(received_gbps(r#"{"end":{"sum_received":{"bits_per_second":0}}}"#).is_err());
    }
}
