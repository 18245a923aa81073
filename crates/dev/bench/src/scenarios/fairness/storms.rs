//! Storms of doorbells, ports, connections and requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use netvale_control::dirs::CONTROL_SOCKET;
use netvale_harness::attacks::bells;

use super::company::{Company, as_stranger};
use super::*;

/// Connections or requests per turn.
const BURST: usize = 16;
/// Interval of actions that take long.
const EVERY: Duration = Duration::from_millis(1);

/// Rings all doorbells of its own port, without sending frames.
pub fn rings(daemon: &Daemon) -> Result<Company> {
    let before = bells::numbers();
    let port = daemon.open("vale0:beside", 64)?;
    let new = bells::numbers().into_iter().filter(|number| !before.contains(number));
    let bells = bells::copies(new).map_err(BenchError::io("copying a doorbell"))?;
    Ok(Box::new(move || {
        let _ = &port;
        for bell in &bells {
            // A full eventfd has the same effect.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
        Ok(())
    }))
}

/// Repeats an action at the interval [`EVERY`].
fn often(mut act: impl FnMut() -> Result<()> + Send + 'static) -> Result<Company> {
    let mut last = Instant::now();
    Ok(Box::new(move || {
        if last.elapsed() < EVERY {
            return Ok(());
        }
        let done = act();
        last = Instant::now();
        done
    }))
}

/// Opens and closes a port repeatedly.
pub fn reattaches(daemon: &Daemon) -> Result<Company> {
    let options = Options { run_dir: Some(daemon.dir().into()), slots: 64, ..Options::default() };
    often(move || {
        // Opening is refused until the daemon has noticed that the previous port is closed.
        let _ = as_stranger(|| Port::open_with("vale0:beside", &options));
        Ok(())
    })
}

fn control(daemon: &Daemon) -> PathBuf {
    daemon.dir().join(CONTROL_SOCKET)
}

/// Connects and disconnects repeatedly.
pub fn connects(daemon: &Daemon) -> Result<Company> {
    let socket = control(daemon);
    let dir = daemon.dir().to_owned();
    often(move || {
        for _ in 0..BURST {
            // A refused connection has the same effect.
            let _ = as_stranger(|| (UnixStream::connect(&socket), netvale::raw::connect_to(Some(&dir))));
        }
        Ok(())
    })
}

/// Sends requests that are refused, and reads the answers as they arrive.
pub fn is_refused(daemon: &Daemon) -> Result<Company> {
    let socket = control(daemon);
    let mut stream = as_stranger(|| UnixStream::connect(socket)).map_err(BenchError::io("connecting"))?;
    stream.set_nonblocking(true).map_err(BenchError::io("connecting"))?;
    let request =
        r#"{"jsonrpc":"2.0","id":1,"method":"port.attach","params":{"switch":"vale0","port":"netmap:nosuch0"}}"#;
    let burst = format!("{request}\n").repeat(BURST);
    let mut rest = 0;
    often(move || {
        let mut room = [0; 16_384];
        while matches!(stream.read(&mut room), Ok(1..)) {}
        // If the socket is full, the daemon is busy enough.
        rest += stream.write(&burst.as_bytes()[rest..]).unwrap_or(0);
        rest %= burst.len();
        Ok(())
    })
}
