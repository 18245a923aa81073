//! TCP by iperf3 between two network namespaces over the Linux bridge with veth: the peer of TAP ports on a VALE
//! switch.
//!
//! The bridge with TAPs is no peer here: a TAP's other end is a file that some program must read and write, so two
//! namespaces joined by "the bridge with TAPs" are joined by that program's copying loop, and its figure would be that
//! loop's, not the kernel's. veth is how the kernel itself attaches a namespace to its bridge, and the faster of the
//! two.

use serde_json::Value;

use crate::prelude::*;

/// What it takes to run it.
pub const NEEDS: &[Need] = &[Need::Program("iperf3", "iperf3"), NETWORKS[0], NETWORKS[1]];
const START_LIMIT: Duration = Duration::from_secs(10);
/// What a server says when it waits for a client.
const READY: &str = "Server listening";

/// The peer.
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
    let words = format!("client {}, server {}; the kernel's work on the same", cores.0, cores.1);
    Ok(tcp.session(words).keeping(hub))
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

/// An iperf3 server in one namespace, and a client to run in another: for whatever lies between the two.
pub struct Iperf {
    client: Netns,
    server: Child,
    address: String,
    cores: Cores,
    beside: Vec<u32>,
    // The server lives in its namespace; folder and namespace go after it.
    _server_namespace: Netns,
    _folder: tempfile::TempDir,
}

impl Iperf {
    /// Starts the server in the second namespace, reached from the first one at `address`; `cores` are the client's and
    /// the server's. Processes `beside`, too, belong to what is measured.
    pub fn start([client, inside]: [Netns; 2], address: &str, cores: Cores, beside: Vec<u32>) -> Result<Self> {
        let folder = sys::scratch("iperf3")?;
        let mut command = inside.command("stdbuf");
        command.args(["-oL", "iperf3", "--server", "--affinity", &cores.1.to_string()]);
        let server = Child::spawn(command, &folder.path().join("server.log"))?;
        server.expect(READY, START_LIMIT)?;
        let address = address.to_owned();
        Ok(Self { client, server, address, cores, beside, _server_namespace: inside, _folder: folder })
    }

    /// One stream.
    pub fn session(mut self, words: String) -> Session {
        Session::new(words, true, move |window| self.measure(window))
    }

    /// One client run of about `window` (iperf3 counts whole seconds), in Gbit/s received.
    fn measure(&mut self, window: Duration) -> Result<Sample> {
        let seconds = window.as_secs_f64().ceil().max(1.0);
        let mut processes = self.beside.clone();
        processes.push(self.server.pid());
        let watch = Watch::start(&processes, &[]);
        let mut command = self.client.command("iperf3");
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

/// The receiver's rate in iperf3's JSON report, Gbit/s.
fn received_gbps(report: &str) -> Result<f64> {
    let parsed = serde_json::from_str::<Value>(report).ok();
    let rate = parsed.and_then(|value| value.pointer("/end/sum_received/bits_per_second")?.as_f64());
    let rate = rate.ok_or_else(|| BenchError::unreadable("iperf3", "the received rate", report))?;
    if rate > 0.0 { Ok(rate / 1e9) } else { Err(BenchError::NoTraffic("iperf3".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the received rate of a report is found; a report of a failure is an error that shows it.
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
