//! Tasks that are moved between workers while frames pass.

use crate::common;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use common::ports::attach;
use common::{Daemon, LIMIT, frame};
use netvale::{Interest, Options, Port};
use netvale_daemon::worker::{Polling, Worker};
use netvale_harness::attacks::filters::rule;
use netvale_mem::appl::{AppRing, Dir};
use netvale_mem::fault::Fault;
use netvale_mem::host::{HostRx, HostTx};
use netvale_mem::layout::RegionSizes;
use netvale_mem::notify::Doorbell;
use netvale_mem::{PortMem, PortShape, Region};
use netvale_port::domain::TimeDomain;
use netvale_port::ring_in::RingIngress;
use netvale_port::ring_out::RingEgress;
use netvale_port::{PassResult, RingCounters};
use netvale_switch::{ForwardMemory, Forwarder, PortId, Switch, Task};
use serde_json::json;

/// Number of moves in a test.
const MOVES: usize = 3000;
const SENDER_SLOTS: u32 = 64;

fn bell() -> Doorbell {
    Doorbell::new().unwrap()
}

fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(netvale_harness::until(LIMIT, Duration::from_millis(1), done), "time is up: {what}");
}

/// Starts workers that poll for `spin_us` before they sleep.
fn workers<const N: usize>(spin_us: u64) -> [Worker; N] {
    let polling = Polling::Spin(Duration::from_micros(spin_us));
    std::array::from_fn(|i| Worker::start(i, None, polling, Fault::new().unwrap(), TimeDomain::TRUSTED).unwrap())
}

fn memory(slots: u32) -> Arc<PortMem> {
    let shape = PortShape { tx_rings: 1, rx_rings: 1, tx_slots: slots, rx_slots: slots };
    Arc::new(Region::private(RegionSizes::for_port(2, slots, 256, 0, 0)).unwrap().port(shape).unwrap())
}

/// A switch with two ports: the port of a sender, which has no ring yet, and the port of a lossless receiver.
struct Place {
    switch: Arc<Switch>,
    sender: PortId,
    receiver: AppRing,
    received: u32,
}

impl Place {
    fn new(slots: u32) -> Place {
        let switch = Switch::new("vale-test");
        let mem = memory(slots);
        let room = Arc::new(bell());
        let rx = mem.rx[0].clone();
        let egress = RingEgress::new(mem, HostRx::new(rx.clone(), bell()), 0, Arc::<RingCounters>::default());
        let egresses = vec![Arc::new(egress.with_room_bell(Arc::clone(&room))) as _];
        switch
            .attach(netvale_switch::AttachedPort {
                name: "receiver".into(),
                egresses,
                lossless: true,
                ..netvale_switch::AttachedPort::default()
            })
            .unwrap();
        let sender = switch
            .attach(netvale_switch::AttachedPort { name: "sender".into(), ..netvale_switch::AttachedPort::default() })
            .unwrap();
        let receiver = AppRing::new(rx, Dir::Rx, room.try_clone().unwrap());
        Place { switch, sender, receiver, received: 0 }
    }

    /// Receives frames, which must be numbered consecutively. Returns the number of frames that have arrived.
    fn receive(&mut self) -> u32 {
        let ring = &mut self.receiver;
        ring.sync();
        let frames = ring.space();
        for k in 0..frames {
            let mut number = [0; 4];
            assert!(ring.mem().read(ring.slot(ring.at(k)).buf_idx, 14, &mut number));
            assert_eq!(u32::from_be_bytes(number), self.received + k, "a frame is missing, came twice, or early");
        }
        ring.advance(frames);
        ring.sync();
        self.received += frames;
        frames
    }
}

/// Creates a tx ring for the sender's port of `place`, and the ring's forwarder.
fn sender(place: &Place) -> (AppRing, Forwarder) {
    let mem = memory(SENDER_SLOTS);
    let doorbell = bell();
    let tx = mem.tx[0].clone();
    let ring = AppRing::new(tx.clone(), Dir::Tx, doorbell.try_clone().unwrap());
    let ingress = RingIngress::new(mem, HostTx::new(tx, bell()), doorbell, 0, Arc::default());
    (ring, Forwarder::new(Arc::clone(&place.switch), place.sender, 0, Box::new(ingress)))
}

/// Sends a frame with that number. Returns false, and sends nothing, if there is no room.
fn send(ring: &mut AppRing, number: u32) -> bool {
    ring.sync();
    if ring.space() == 0 {
        return false;
    }
    let mut bytes = frame(255, 1, 0);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    let slot = ring.at(0);
    assert!(ring.mem().write(ring.slot(slot).buf_idx, 0, &bytes));
    ring.mem().set_len_flags(slot, 60, 0);
    ring.advance(1);
    ring.sync();
    true
}

/// A forwarder that its worker polls only when its descriptor is readable. In these tests, the descriptor is always
/// readable.
struct Costly(Forwarder);

impl Task<ForwardMemory> for Costly {
    fn pass(&mut self, work: &mut ForwardMemory) -> PassResult {
        self.0.pass(work)
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        Task::disarm(&mut self.0);
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Task::wake_fd(&self.0)
    }

    fn is_cheap(&self) -> bool {
        false
    }

    fn ask_for_room(&mut self) -> Option<BorrowedFd<'_>> {
        self.0.ask_for_room()
    }

    fn stop_asking(&mut self, forget: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.0.stop_asking(forget);
    }
}

/// Moves task 1 from worker to worker while frames pass. After each move, `then` acts on the new worker.
fn move_while_frames_pass(
    place: &mut Place,
    ring: &mut AppRing,
    workers: &[Worker],
    then: impl Fn(usize, &Worker) + Sync,
) {
    let moved = AtomicBool::new(false);
    let mut sent = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..MOVES {
                let from = &workers[i % workers.len()];
                let to = &workers[(i + 1) % workers.len()];
                until("the worker answers", || from.move_to(1, to));
                then(i, to);
            }
            moved.store(true, Ordering::Release);
        });
        until("all frames arrive", || {
            for _ in 0..200 {
                while !moved.load(Ordering::Relaxed) && send(ring, sent) {
                    sent += 1;
                }
                if place.receive() == 0 {
                    std::thread::yield_now();
                }
            }
            moved.load(Ordering::Acquire) && place.received == sent
        });
    });
    assert!(sent > 0);
}

/// Objective: frames of a task that moves thousands of times arrive once and in order, at a receiver with room and at a
/// receiver for which almost every batch must wait.
#[test]
fn frames_keep_their_order() {
    for (slots, spin_us) in [(256, 20), (256, 0), (4, 0), (4, 50)] {
        let mut place = Place::new(slots);
        let (mut ring, forwarder) = sender(&place);
        let workers: [Worker; 3] = workers(spin_us);
        workers[0].add(1, Box::new(forwarder));
        move_while_frames_pass(&mut place, &mut ring, &workers, |_, _| ());
        let count = |w: &Worker| w.stats().ingresses.load(Ordering::Relaxed);
        assert_eq!(workers.iter().map(count).collect::<Vec<_>>()[MOVES % 3], 1);
        assert_eq!(workers.iter().map(count).sum::<u64>(), 1);
    }
}

/// Objective: frames also keep their order if their task is polled only when its descriptor is readable, even while
/// frames wait for room.
#[test]
fn frames_of_a_task_with_a_descriptor() {
    for slots in [256, 4] {
        let mut place = Place::new(slots);
        let (mut ring, forwarder) = sender(&place);
        Task::wake_fd(&forwarder).map(|fd| rustix::io::write(fd, &1u64.to_ne_bytes())).unwrap().unwrap();
        let workers: [Worker; 2] = workers(0);
        workers[0].add(1, Box::new(Costly(forwarder)));
        move_while_frames_pass(&mut place, &mut ring, &workers, |_, _| ());
    }
}

/// Objective: frames keep their order if, between the moves, the task is drained, its worker is kept awake, and the
/// port from which the frames are sent changes.
#[test]
fn moves_among_other_commands() {
    for slots in [256, 4] {
        let mut place = Place::new(slots);
        let (mut ring, forwarder) = sender(&place);
        let workers: [Worker; 3] = workers(5);
        workers[0].add(1, Box::new(forwarder));
        let switch = Arc::clone(&place.switch);
        let from = place.sender;
        move_while_frames_pass(&mut place, &mut ring, &workers, |i, worker| match i % 4 {
            0 => assert_eq!(worker.drain(1).recv_timeout(LIMIT), Ok(())),
            1 => worker.keep_awake(1, i % 8 == 1),
            2 => worker.rehome(1, Arc::clone(&switch), from),
            _ => {}
        });
        let last = &workers[MOVES % 3];
        assert_eq!(last.remove(1).recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
        assert_eq!(Arc::strong_count(&switch), 2, "the forwarder is gone");
    }
}

/// Objective: a command that is sent after a move always reaches the task.
#[test]
fn commands_follow_the_task() {
    let mut places = [Place::new(16), Place::new(16)];
    let (mut ring, forwarder) = sender(&places[0]);
    let workers: [Worker; 2] = workers(5);
    workers[0].add(1, Box::new(forwarder));
    for i in 0..MOVES {
        until("the worker answers", || workers[i % 2].move_to(1, &workers[(i + 1) % 2]));
        let there = &workers[(i + 1) % 2];
        let place = &mut places[i / 2 % 2];
        there.rehome(1, Arc::clone(&place.switch), place.sender);
        // After this answer, the worker is no longer in a round that began earlier, in which it could still find the
        // frame.
        assert_eq!(there.drain(1).recv_timeout(LIMIT), Ok(()));
        assert!(send(&mut ring, place.received));
        assert_eq!(there.drain(1).recv_timeout(LIMIT), Ok(()));
        assert_eq!(place.receive(), 1, "after move {i}");
    }
}

/// An idle task that holds a value, and that waits or panics on request.
#[derive(Default)]
struct Idle {
    kept: Arc<()>,
    /// What the next pass does: 0 nothing, 1 waits until this value changes, 2 panics.
    todo: Arc<AtomicU64>,
    is_there: Arc<AtomicBool>,
}

impl Task<ForwardMemory> for Idle {
    fn pass(&mut self, _work: &mut ForwardMemory) -> PassResult {
        while self.todo.load(Ordering::Acquire) == 1 {
            self.is_there.store(true, Ordering::Release);
            std::thread::yield_now();
        }
        assert_ne!(self.todo.load(Ordering::Acquire), 2, "a mistake, made for this test");
        PassResult::Idle
    }

    fn arm(&mut self) -> bool {
        self.todo.load(Ordering::Acquire) != 0
    }
}

/// Objective: a worker stays awake for a task that must not sleep, even if the task was moved to the worker, and sleeps
/// after the task has moved away.
#[test]
fn a_wish_to_stay_awake_moves_along() {
    let workers: [Worker; 2] = workers(0);
    workers[0].add(1, Box::new(Idle::default()));
    workers[0].keep_awake(1, true);
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let goes_on = |counter: &AtomicU64| {
        let before = count(counter);
        until("the counter goes on", || count(counter) > before);
    };
    for i in 0..20 {
        let [from, to] = [i % 2, (i + 1) % 2].map(|i| &workers[i]);
        goes_on(&from.stats().polled_ns);
        assert!(from.move_to(1, to));
        goes_on(&to.stats().polled_ns);
        // A command wakes the worker briefly. A sleep is counted when it ends.
        until("the other one sleeps", || {
            let before = count(&from.stats().sleeps);
            from.drain(1).recv_timeout(LIMIT).unwrap();
            until("it goes to sleep", || count(&from.stats().sleeps) > before);
            true
        });
    }
    workers[0].keep_awake(1, false);
    until("it may sleep", || {
        let before = count(&workers[0].stats().sleeps);
        workers[0].drain(1).recv_timeout(LIMIT).unwrap();
        netvale_harness::until(Duration::from_millis(100), Duration::ZERO, || {
            count(&workers[0].stats().sleeps) > before
        })
    });
}

/// Objective: a task that was removed, or that panicked, does not move; a task on a worker that is held up stays on
/// that worker, and executes commands later.
#[test]
fn what_cannot_move_stays() {
    let fault = Fault::new().unwrap();
    let start = |i| Worker::start(i, None, Polling::Spin(Duration::ZERO), fault.clone(), TimeDomain::TRUSTED).unwrap();
    let workers = [start(0), start(1)];
    assert!(!workers[0].move_to(1, &workers[1]), "there is no such task");
    let task = Idle::default();
    let kept = Arc::downgrade(&task.kept);
    let todo = Arc::clone(&task.todo);
    let is_there = Arc::clone(&task.is_there);
    todo.store(1, Ordering::Release);
    workers[0].add(1, Box::new(task));
    until("the worker is held up", || is_there.load(Ordering::Acquire));
    assert!(!workers[0].move_to(1, &workers[1]), "the worker does not answer");
    todo.store(0, Ordering::Release);
    assert_eq!(workers[0].drain(1).recv_timeout(LIMIT), Ok(()));
    assert!(workers[0].move_to(1, &workers[1]));
    assert!(!workers[0].move_to(1, &workers[1]), "it is there already");
    todo.store(2, Ordering::Release);
    // After a command, the worker polls its tasks.
    assert_eq!(workers[1].drain(2).recv_timeout(LIMIT), Ok(()));
    until("the panic is reported", || fault.reason().is_some());
    assert!(!workers[1].move_to(1, &workers[0]), "it is lost");
    assert_eq!((workers[0].take_broken(), workers[1].take_broken()), (vec![], vec![1]));
    until("it is dropped", || kept.upgrade().is_none());
}

/// Objective: when the old and the new worker of a task end, in either order, the task is dropped completely.
#[test]
fn nothing_is_left_behind() {
    for i in 0..200 {
        let [first, second]: [Worker; 2] = workers(0);
        let task = Idle::default();
        let kept = Arc::downgrade(&task.kept);
        first.add(1, Box::new(task));
        std::thread::scope(|scope| {
            let from = &first;
            let to = &second;
            scope.spawn(move || from.move_to(1, to));
        });
        if i % 2 == 0 {
            drop(first);
            drop(second);
        } else {
            drop(second);
            drop(first);
        }
        until("the task is dropped", || kept.upgrade().is_none());
    }
}

/// Returns the number of the worker that forwards a port's frames.
fn worker_of(d: &Daemon, port: &str) -> u64 {
    let shown = d.show(port);
    shown["rings"].as_array().unwrap().iter().find_map(|ring| ring["worker"].as_u64()).unwrap()
}

/// Objective: if two busy senders are on one worker, one of them moves to the other worker after a while; no frame that
/// is sent during the move is lost on the way to the switch.
#[test]
fn busy_senders_part() {
    let d = Daemon::start("workers = 2");
    attach(&d, "null:", json!({}));
    // A full ring keeps the worker busy while a sender has no CPU.
    let options = Options { slots: 4096, ..d.options() };
    let mut ports = ["vale0:a", "vale0:b", "vale0:c"].map(|name| Port::open_with(name, &options).unwrap());
    assert_eq!(worker_of(&d, "vale0:a"), worker_of(&d, "vale0:c"), "as many tasks each");
    for port in ["vale0:a", "vale0:c"] {
        // With this rule, a frame takes more time in the worker than in the sender, so that the worker is always busy.
        d.set(port, json!({"filter_in": [rule("pass", 200)]}));
    }
    let parted = AtomicBool::new(false);
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let [a, _, c] = &mut ports;
        let senders = [a, c].map(|port| {
            scope.spawn(|| {
                let frame = frame(9, 1, 0);
                let mut sent = 0u64;
                while !parted.load(Ordering::Relaxed) {
                    if port.tx()[0].send(&frame) {
                        sent += 1;
                    } else {
                        port.wait(Interest::Tx, Some(LIMIT)).unwrap();
                    }
                }
                port.tx()[0].sync();
                sent
            })
        });
        let apart = || worker_of(&d, "vale0:a") != worker_of(&d, "vale0:c");
        let in_time = netvale_harness::until(LIMIT, Duration::from_millis(20), apart);
        parted.store(true, Ordering::Relaxed);
        let sent = senders.map(|sender| sender.join().unwrap()).into();
        assert!(in_time, "they are on the same worker for so long");
        sent
    });
    for (name, sent) in ["vale0:a", "vale0:c"].into_iter().zip(sent) {
        until("all frames are taken", || d.show(name)["rings"][0]["frames"].as_u64() == Some(sent));
    }
}
