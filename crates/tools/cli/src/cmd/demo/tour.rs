//! The steps of the demonstration. Each prints its title, runs the commands that a user would type, and returns a
//! figure.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use netvale_harness::net::{NamespaceHost, ip};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::DemoArgs;
use super::stage::{DemoDaemon, Figure, Guide, failed, finish, harness, host, run_on, start};
use crate::{CliError, grid, out, units};

/// Runs all steps, inside the namespaces.
///
/// # Errors
/// The error of the first step that fails.
pub fn run(args: &DemoArgs) -> Result<(), CliError> {
    let guide = Guide { quiet: args.json };
    guide.station("A switch, in user space: no kernel module")?;
    guide.command("netvale up")?;
    let daemon = DemoDaemon::start()?;
    let mut figures = tcp(&guide, &daemon, args)?;
    figures.push(packets(&guide, &daemon, args)?);
    figures.push(pipe(&guide, &daemon, args)?);
    figures.push(capture(&guide, &daemon, args)?);
    figures.extend(nic(&guide, &daemon, args)?);
    figures.push(way_out(&guide, &daemon)?);
    if args.json {
        let object: serde_json::Map<String, Value> = figures.into_iter().map(|f| (f.what.to_owned(), f.json)).collect();
        out::json(&object)?;
        return Ok(());
    }
    guide.station("Results")?;
    out::text(grid::render(
        [("WHAT", grid::Align::Left), ("RATE", grid::Align::Right)],
        figures.into_iter().map(|f| [f.what.to_owned(), f.value]),
    ))?;
    guide.say("\nNext, try `netvale up` and, in other terminals, `netvale pkt-gen` and `netvale top`;")?;
    guide.say("`make bench` compares with DPDK and the kernel; README.md lists what to read first.")
}

/// Shows ping and TCP between two hosts' TCP/IP stacks over one switch. Returns the measured figures.
fn tcp(guide: &Guide, daemon: &DemoDaemon, args: &DemoArgs) -> Result<Vec<Figure>, CliError> {
    guide.station("Two network namespaces, attached to the switch by TAPs: ping and TCP")?;
    let hosts =
        [host(guide, daemon, "vale0", "nv0", "10.99.0.1/24")?, host(guide, daemon, "vale0", "nv1", "10.99.0.2/24")?];
    guide.command("ping -c 3 10.99.0.2")?;
    let ping = run_on(&hosts[0], "ping", &["-c", "3", "-i", "0.2", "-W", "2", "10.99.0.2"])?;
    let summary: Vec<&str> = ping.lines().rev().take(2).collect();
    summary.iter().rev().try_for_each(|l| guide.output(l))?;
    let seconds = format!("{:.0}", args.seconds.max(1.0));
    guide.command(&format!("iperf3 -c 10.99.0.2 -t {seconds}"))?;
    let mut server = start(&mut hosts[1].command("iperf3", &["-s", "-1", "--forceflush"]))?;
    wait_for_line(server.lines(), "listening")?;
    let report = run_on(&hosts[0], "iperf3", &["-c", "10.99.0.2", "-t", &seconds, "-J"])?;
    let report: Value = serde_json::from_str(&report).map_err(|e| failed("read iperf3's report", &e))?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
    guide.output(&format!("{} received", units::bps(rate)))?;
    let average = summary.first().and_then(|l| l.split('/').nth(4)).unwrap_or("?").to_owned();
    let late = policies(guide, daemon, &hosts)?;
    Ok(vec![
        Figure {
            what: "ping between the namespaces",
            value: format!("{average} ms"),
            json: json!(average.parse::<f64>().ok()),
        },
        Figure { what: "TCP between the namespaces", value: units::bps(rate), json: json!(rate) },
        late,
    ])
}

const PING: [&str; 7] = ["-c", "3", "-i", "0.2", "-W", "1", "10.99.0.2"];

/// Moves one of two ports into another VLAN, joins the ports again, and delays a link. The configuration of the hosts
/// stays unchanged.
fn policies(guide: &Guide, daemon: &DemoDaemon, hosts: &[NamespaceHost; 2]) -> Result<Figure, CliError> {
    guide.station("Policies, while frames pass: a VLAN separates the two hosts and joins them again")?;
    show(guide, daemon, &["port", "set", "vale0:nv0", "access", "10"])?;
    guide.command("ping -c 3 10.99.0.2")?;
    if let Ok(answered) = run_on(&hosts[0], "ping", &PING) {
        return Err(failed("separate two ports by a VLAN", &answered));
    }
    guide.output("no answer: nv1 is in VLAN 1")?;
    show(guide, daemon, &["port", "set", "vale0:nv1", "access", "10"])?;
    ping(guide, hosts)?;
    guide.station("A link with a delay, in netem's notation")?;
    show(guide, daemon, &["link", "vale0:nv0", "delay", "50ms"])?;
    let late = ping(guide, hosts)?;
    show(guide, daemon, &["link", "vale0:nv0", "off"])?;
    Ok(Figure { what: "ping over a link of 50 ms", value: format!("{late} ms"), json: json!(late.parse::<f64>().ok()) })
}

/// Prints a netvale command, and runs it until it ends.
fn show(guide: &Guide, daemon: &DemoDaemon, words: &[&str]) -> Result<(), CliError> {
    guide.command(&format!("netvale {}", words.join(" ")))?;
    daemon.run(words).map(drop)
}

/// Pings the second host from the first. Returns the mean round-trip time in milliseconds, as text.
fn ping(guide: &Guide, hosts: &[NamespaceHost; 2]) -> Result<String, CliError> {
    guide.command("ping -c 3 10.99.0.2")?;
    let ping = run_on(&hosts[0], "ping", &PING)?;
    let summary = ping.lines().last().unwrap_or_default();
    guide.output(summary)?;
    Ok(summary.split('/').nth(4).unwrap_or("?").to_owned())
}

fn wait_for_line(lines: Option<impl BufRead>, word: &str) -> Result<(), CliError> {
    let mut found = lines.into_iter().flat_map(|l| l.lines()).map_while(Result::ok);
    let listens = found.find(|l| l.contains(word)).map(drop);
    listens.ok_or_else(|| failed("start iperf3's server", &"the server did not listen"))
}

/// Shows pkt-gen across the switch. Returns the rate in frames per second.
fn packets(guide: &Guide, daemon: &DemoDaemon, args: &DemoArgs) -> Result<Figure, CliError> {
    guide.station("pkt-gen across the switch, 60-byte frames, one copy each")?;
    // The port is lossless: when the receiver is briefly slower than the sender, it delays the sender, and no frame is
    // lost.
    show(guide, daemon, &["attach", "vale1", "rx", "--lossless"])?;
    let rate = pkt_gen(guide, daemon, "vale1:tx", "vale1:rx", args)?;
    Ok(Figure { what: "60-byte frames across the switch", value: units::pps(rate), json: json!(rate) })
}

/// Shows pkt-gen over a pipe. Returns the rate in frames per second.
fn pipe(guide: &Guide, daemon: &DemoDaemon, args: &DemoArgs) -> Result<Figure, CliError> {
    guide.station("pkt-gen over a pipe between two processes, zero-copy")?;
    let rate = pkt_gen(guide, daemon, "netmap:demo{1", "netmap:demo}1", args)?;
    Ok(Figure { what: "60-byte frames over a pipe", value: units::pps(rate), json: json!(rate) })
}

/// Shows pkt-gen between network interfaces. Returns the rate in frames per second; `None` if this process may not load
/// XDP programs.
fn nic(guide: &Guide, daemon: &DemoDaemon, args: &DemoArgs) -> Result<Option<Figure>, CliError> {
    guide.station("pkt-gen on network interfaces, through AF_XDP: here the two ends of a veth pair")?;
    // In a user namespace other than the initial one, a process may not load XDP programs.
    if std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.contains("4294967295")) {
        guide.output("skipped: XDP programs need root; `sudo netvale demo` shows it")?;
        return Ok(None);
    }
    for line in ["link add demo0 type veth peer name demo1", "link set demo0 up", "link set demo1 up"] {
        guide.command(&format!("ip {line}"))?;
        ip(line).map_err(harness)?;
    }
    let rate = pkt_gen(guide, daemon, "netmap:demo0", "netmap:demo1", args)?;
    let what = "60-byte frames between interfaces";
    Ok(Some(Figure { what, value: units::pps(rate), json: json!(rate) }))
}

fn pkt_gen(guide: &Guide, daemon: &DemoDaemon, from: &str, to: &str, args: &DemoArgs) -> Result<f64, CliError> {
    guide.command(&format!("netvale pkt-gen -i {to} -f rx"))?;
    guide.command(&format!("netvale pkt-gen -i {from} -f tx -l 60"))?;
    let receiver = start(&mut daemon.command(&["pkt-gen", "-i", to, "-f", "rx", "-w", "0", "--json"]))?;
    daemon.wait_for_port(to.trim_end_matches("}1").trim_end_matches("{1"))?;
    let sender = start(&mut daemon.command(&["pkt-gen", "-i", from, "-f", "tx", "-l", "60", "-w", "0", "--json"]))?;
    std::thread::sleep(std::time::Duration::from_secs_f64(args.seconds));
    // The receiver is stopped before the sender, so that the measured time includes no time without frames.
    receiver.signal(Signal::INT);
    let received = finish(receiver)?;
    sender.signal(Signal::INT);
    finish(sender)?;
    let last = received.lines().last().unwrap_or("");
    let report: Value = serde_json::from_str(last).map_err(|e| failed("read pkt-gen's report", &e))?;
    let rate = report["pps"].as_f64().unwrap_or(0.0);
    guide.output(&format!("{} received", units::pps(rate)))?;
    Ok(rate)
}

/// Records traffic in a capture file, and reads it back. Returns the number of frames that were read back.
fn capture(guide: &Guide, daemon: &DemoDaemon, args: &DemoArgs) -> Result<Figure, CliError> {
    const FRAMES: &str = "1000";
    guide.station("A capture of a port's traffic, read back")?;
    let file = args.keep_capture.clone().unwrap_or_else(|| daemon.dir().join("demo.pcap"));
    let path = file.to_string_lossy().into_owned();
    let _port = start(&mut daemon.command(&["pkt-gen", "-i", "vale2:rx", "-f", "rx", "-w", "0", "--json"]))?;
    daemon.wait_for_port("vale2:rx")?;
    guide.command(&format!("netvale dump vale2:rx/z -c {FRAMES} -w {path}"))?;
    let dump = start(&mut daemon.command(&["dump", "vale2:rx/z", "-c", FRAMES, "-w", &path]))?;
    daemon.wait_for_port("vale2:rx/")?;
    let _sender =
        start(&mut daemon.command(&["pkt-gen", "-i", "vale2:tx", "-f", "tx", "-R", "20000", "-w", "0", "--json"]))?;
    guide.output(&finish(dump)?)?;
    let frames = read_back(guide, &path)?;
    Ok(Figure { what: "frames captured and read back", value: frames.to_string(), json: json!(frames) })
}

/// Shows the first frames of a capture. Returns the number of all frames in it.
fn read_back(guide: &Guide, path: &str) -> Result<u64, CliError> {
    let unreadable = |e: &dyn std::fmt::Display| failed("read the capture back", e);
    let mut reader = netvale_pcapport::PcapReader::open(path.as_ref()).map_err(|e| unreadable(&e))?;
    let mut frames = 0;
    while let Some(frame) = reader.next_frame().map_err(|e| unreadable(&e))? {
        if frames < 3 {
            let head: Vec<String> = frame.bytes.iter().take(14).map(|b| format!("{b:02x}")).collect();
            guide.output(&format!("{} bytes: {} …", frame.bytes.len(), head.join(" ")))?;
        }
        frames += 1;
    }
    Ok(frames)
}

/// Text of the page that the gateway's guest fetches.
const PAGE: &str = "hello from the host's loopback";
/// A port of the host's loopback that no rule allows.
const OTHER: u16 = 9;

/// Shows a gateway: a namespace fetches a page from a server on the host's loopback. One rule allows access to this
/// server, and to nothing else. Returns the time that the transfer took.
fn way_out(guide: &Guide, daemon: &DemoDaemon) -> Result<Figure, CliError> {
    guide.station("A gateway, without privilege: HTTP to a server on the host's loopback, which one rule allows")?;
    ip("link set lo up").map_err(harness)?;
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| failed("start a server", &e))?;
    let port = server.local_addr().map_err(|e| failed("start a server", &e))?.port();
    std::thread::spawn(move || server.incoming().flatten().for_each(|client| drop(answer(client))));
    let rule = format!("127.0.0.1:{port}");
    guide.command(&format!("netvale gateway vale3 10.98.0.1/24 --deny any --allow {rule}"))?;
    let words = ["gateway", "vale3", "10.98.0.1/24", "--deny", "any", "--allow", &rule, "--log-level", "warn"];
    let _gateway = start(&mut daemon.command(&words))?;
    daemon.wait_for_port("vale3:gateway")?;
    let guest = host(guide, daemon, "vale3", "nv2", "10.98.0.2/24")?;
    let url = format!("http://10.98.0.1:{port}/");
    guide.command(&format!("curl {url}"))?;
    let begun = Instant::now();
    let got = run_on(&guest, "curl", &["-sS", "--max-time", "20", &url])?;
    let took = begun.elapsed();
    if got.trim() != PAGE {
        return Err(failed("fetch a page through the gateway", &format!("expected {PAGE:?}, found {got:?}")));
    }
    guide.output(&got)?;
    refused(guide, &guest)?;
    let ms = took.as_secs_f64() * 1000.0;
    Ok(Figure { what: "a page through the gateway", value: format!("{ms:.1} ms"), json: json!(ms) })
}

/// Shows that another port of the loopback is refused.
fn refused(guide: &Guide, guest: &NamespaceHost) -> Result<(), CliError> {
    let url = format!("http://10.98.0.1:{OTHER}/");
    guide.command(&format!("curl {url}"))?;
    let mut curl = guest.command("curl", &["-sS", "--max-time", "20", &url]);
    match finish(start(curl.stderr(Stdio::null()))?) {
        Ok(got) => Err(failed("refuse a port", &format!("curl got {got:?} from port {OTHER}"))),
        Err(_) => guide.output("refused: no rule allows port 9"),
    }
}

/// Answers one request with the page.
fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let head = BufReader::new(client.try_clone()?).lines();
    // The request ends with an empty line.
    head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    let head = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", PAGE.len() + 1);
    client.write_all(format!("{head}{PAGE}\n").as_bytes())
}
