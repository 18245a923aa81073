//! Frames from one process to another over a netmap pipe. Each process has a core; the daemon only connects them.

use super::programs::{Program, RECEIVER, SENDER};
use super::traffic::Books;
use super::*;

const LARGE: Variant = Variant { unit: Unit::Gbps, frame_bytes: &[1500], batch: &[64], ..Variant::TWO_PORTS };

/// The scenario: a sender and a receiver at the ends of a netmap pipe.
pub const SCENARIO: Scenario = Scenario {
    name: "pipe",
    about: "frames from one process to another over a pipe; touched: first line written and read, untouched: slots \
        only",
    variants: variants![Variant::SHORT => "untouched", "touched"; LARGE => "touched-large", "all-bytes-large"],
    needs: &[TWO],
    start,
};

fn touch(case: &Case) -> Touch {
    match case.variant.as_str() {
        "untouched" => Touch::Nothing,
        "all-bytes-large" => Touch::All,
        _ => Touch::Line,
    }
}

fn start(case: &Case, cores: Cores) -> Result<Session> {
    let daemon = Daemon::start(None, cores.0, "")?;
    let touch = touch(case);
    let spawn = |role: &str, core: usize, port: &str| {
        let dir = daemon.dir().into();
        let port = port.into();
        let case = case.clone();
        let program = Program { dir, port, case, touch, sleeps: false };
        let worker = Worker::spawn(Wrapper::None, role, Some(core), &program)?;
        worker.freeze().map(|()| worker)
    };
    let receiver = spawn(RECEIVER, cores.1, "netmap:bench}1")?;
    let sender = spawn(SENDER, cores.0, "netmap:bench{1")?;
    let pids = vec![sender.pid(), receiver.pid()];
    let threads = pids.iter().map(|&pid| (pid, pid)).collect();
    let how = CountOptions { settle: SETTLE, pids: Some(pids), threads, ..CountOptions::default() };
    let words = format!("sender on CPU {}, receiver on CPU {}", cores.0, cores.1);
    let session = received(case, words, case.touches(), [&sender, &receiver], how);
    let batch = case.batch;
    let check = move || books(batch, &sender, &receiver).check("netvale's pipe");
    Ok(session.checked(check).keeping(daemon).fact("slots", SLOTS).fact("bytes", touch.words()))
}

/// Returns the counts of sender and receiver. A process may be stopped between filling a batch and counting it, hence
/// the tolerance of some batches.
fn books(batch: u32, sender: &Rc<Worker>, receiver: &Rc<Worker>) -> Books {
    let received = receiver.count(FRAMES);
    Books {
        sent: sender.count(FRAMES) + u64::from(batch),
        received,
        wrong: receiver.count(WRONG),
        dropped: 0,
        in_flight: u64::from(2 * SLOTS + 2 * batch),
    }
}
