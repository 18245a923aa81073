"""Ports: frames, views and their end."""

import array
import gc
import select
import threading
import warnings

import netvale
from daemon import LIMIT, WithDaemon, frame, number


class Frames(WithDaemon):
    def test_all_arrive_in_order(self):
        """Objective: batches of all sizes arrive complete and in order, many times round the ring, by views and by copies."""
        a, b = self.two_ports(slots=64)
        sent = got = 0
        while sent < 5000:
            batch = [frame(sent + k) for k in range(sent % 47 + 1)]
            sent += a.send(batch)
            while got < sent and b.wait(LIMIT):
                frames = b.recv(got % 13 + 1)
                self.assertLessEqual(len(frames), got % 13 + 1)
                for view in frames:
                    self.assertEqual(view, frame(got))
                    got += 1
        self.assertEqual(got, sent)

    def test_lengths_and_forms(self):
        """Objective: a frame may be any bytes-like object, of one slot or of several; another object is refused and nothing is sent."""
        a, b = self.two_ports()
        frames = [frame(1), bytearray(frame(2, 61)), memoryview(frame(3, 2112)), frame(4, 2113), frame(5, 9000), array.array("H", frame(6, 64))]
        self.assertEqual(a.send(frames), 6)
        self.assertEqual(self.receive(b, 6), [bytes(f) for f in frames])
        for bad in ([frame(7), b""], [frame(7), "text"], [frame(7), frame(8, 3_000_000)]):
            with self.assertRaises((ValueError, TypeError)):
                a.send(bad)
        with self.assertRaises(TypeError):
            a.send(frame(9))
        a.send([frame(10)])
        self.assertEqual([number(f) for f in self.receive(b, 1)], [10])

    def test_room(self):
        """Objective: a full ring takes as many frames as fit and returns their number; sendall waits for room, up to its limit."""
        with netvale.open("netmap:full{1", slots=64) as a, netvale.open("netmap:full}1") as b:
            frames = [frame(k) for k in range(200)]
            done = a.send(frames)
            self.assertTrue(0 < done < 200)
            self.assertFalse(a.wait_room(0))
            with self.assertRaises(TimeoutError):
                a.sendall(frames[done:], timeout=0.01)
            rest = threading.Thread(target=a.sendall, args=(frames[done:], LIMIT))
            rest.start()
            got = [number(f) for f in self.receive(b, 200)]
            rest.join()
            self.assertEqual(got, list(range(200)))

    def test_waiting(self):
        """Objective: a wait ends after its timeout, and when a frame arrives."""
        a, b = self.two_ports()
        self.assertFalse(b.wait(0))
        self.assertFalse(b.wait(0.01))
        later = threading.Timer(0.05, a.send, [[frame(1)]])
        later.start()
        self.assertTrue(b.wait(LIMIT))
        later.join()

    def test_select(self):
        """Objective: the descriptor is readable exactly while frames wait, also those that a bounded recv left."""
        a, b = self.two_ports()
        ready = lambda limit: bool(select.select([b], [], [], limit)[0])
        self.assertFalse(ready(0))
        for _ in range(3):
            a.send([frame(k) for k in range(5)])
            self.assertTrue(ready(LIMIT))
            self.receive(b, 5)
            self.assertFalse(ready(0))
        a.send([frame(k) for k in range(5)])
        self.assertTrue(b.wait(LIMIT))
        while not b.rx[0].space == 5:
            b.sync()
        self.assertEqual(len(b.recv(4)), 4)
        self.assertTrue(ready(0))
        self.assertEqual(len(b.recv(4)), 1)
        self.assertFalse(ready(0))

    def test_several_rings(self):
        """Objective: frames sent on several rings arrive, each ring's in order."""
        a, b = self.two_ports(rings=2)
        self.assertEqual((len(a.tx), len(b.rx)), (2, 2))
        for k in range(20):
            a.sendall([frame(k)], LIMIT)
        self.assertEqual(sorted(number(f) for f in self.receive(b, 20)), list(range(20)))


class ZeroCopy(WithDaemon):
    def test_slots(self):
        """Objective: frames are written and read in their buffers, through slots of the rings."""
        a, b = self.two_ports()
        ring = a.tx[0]
        for k, slot in zip(range(3), ring):
            slot.buf[:60] = frame(k)
            slot.len, slot.flags = 60, 0
        ring.advance(3)
        ring.sync()
        self.assertTrue(b.wait(LIMIT))
        while b.rx[0].space < 3:
            b.rx[0].sync()
        self.assertEqual([number(slot.buf) for slot in b.rx[0]], [0, 1, 2])
        self.assertEqual([slot.len for slot in b.rx[0]], [60] * 3)
        with self.assertRaises(ValueError):
            b.rx[0].advance(4)
        b.rx[0].advance(3)
        b.rx[0].sync()
        self.assertEqual(b.rx[0].space, 0)

    def test_swap(self):
        """Objective: a frame moves from one pipe into another of the same region without a copy; not into another region."""
        ports = [netvale.open(name) for name in ("netmap:sw{1", "netmap:sw}1")]
        ports += [netvale.open(f"netmap:sw{end}2@{ports[0].mem_id}") for end in "{}"]
        first, second, third, fourth = ports
        for port in ports:
            self.addCleanup(port.close)
        first.send([frame(7)])
        self.assertTrue(second.wait(LIMIT))
        second.rx[0].slots[second.rx[0].head].swap(third.tx[0].slots[third.tx[0].head])
        second.rx[0].advance(1)
        third.tx[0].advance(1)
        third.sync(), second.sync()
        self.assertEqual([number(f) for f in self.receive(fourth, 1)], [7])
        other, _ = self.two_ports()
        with self.assertRaises(ValueError):
            other.tx[0].slots[0].swap(third.tx[0].slots[0])

    def test_bad_slots_of_a_peer(self):
        """Objective: what the other end of a pipe writes into the shared slots (lengths over the buffer, buffers outside of the region, frames without
        an end, indices beyond the ring) costs frames at most, and never shows anything else than the region's buffers."""
        with netvale.open("netmap:bad{1") as a, netvale.open("netmap:bad}1") as b:
            size = a.tx[0].buf_size
            a.send([frame(k) for k in range(6)])
            self.assertTrue(b.wait(LIMIT))
            slots, first = b.rx[0]._slots, b.rx[0].head
            words = [slots[2 * (first + k)] for k in range(6)]
            slots[2 * first] = words[0] | 0xFFFF << 32
            slots[2 * (first + 1)] = words[1] | 0xFFFFFFFF
            slots[2 * (first + 3)] = words[3] & ~(0xFFFF << 32) | (size + 1) << 32
            slots[2 * (first + 5)] = words[5] | 0x20 << 48
            with self.assertRaises(netvale.NetvaleError):
                b.rx[0].slots[first + 1].buf
            self.assertLessEqual(b.rx[0].slots[first].len, size)
            self.assertEqual([number(f) for f in b.recv()], [2, 4])
            self.assertEqual(b.rx[0].bad, 3)
            for wild in (0xFFFFFFFF, b.rx[0].num_slots, 1 << 31):
                b.rx[0]._words[7] = b.rx[0]._words[5] = wild
                self.assertTrue(all(len(view) <= 64 * size for view in b.recv()))


class TheEnd(WithDaemon):
    def test_views_are_released(self):
        """Objective: a view cannot be used after the next recv, and nothing of the port after its end; an object derived from a view, which cannot be
        released, then shows zeros."""
        a, b = self.two_ports()
        a.send([frame(1)])
        self.assertTrue(b.wait(LIMIT))
        (view,) = b.recv()
        b.recv()
        with self.assertRaises(ValueError):
            view[0]
        a.send([frame(2)])
        self.assertTrue(b.wait(LIMIT))
        (view,) = b.recv()
        slot, derived = b.rx[0].slots[0], view[:6]
        whole = slot.buf
        b.close()
        for use in (lambda: view[0], lambda: whole[0], lambda: slot.len, lambda: b.rx[0].head):
            self.assertRaises(ValueError, use)
        self.assertEqual(derived, bytes(6))
        derived[0] = 1
        for use in (b.recv, b.wait, b.fileno, lambda: b.send([frame(3)])):
            self.assertRaises(netvale.Closed, use)
        b.close()

    def test_close_ends_waiting(self):
        """Objective: a thread that waits continues when another one closes the port."""
        _, b = self.two_ports()
        threading.Timer(0.05, b.close).start()
        self.assertRaises(netvale.Closed, b.wait, LIMIT)

    def test_forgotten(self):
        """Objective: a port that nobody closed is closed with a warning, which frees its name."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            netvale.open("vale9:forgotten/x")
            gc.collect()
        self.assertTrue(any(issubclass(w.category, ResourceWarning) for w in seen))
        netvale.open("vale9:forgotten/x").close()

    def test_errors(self):
        """Objective: an error has the daemon's text, with netmap's errno."""
        with netvale.open("vale9:mine/x"):
            with self.assertRaises(netvale.NetvaleError) as caught:
                netvale.open("vale9:mine/x")
        self.assertEqual(caught.exception.errno, 16)
        self.assertIn("vale9:mine", caught.exception.strerror)
        with self.assertRaises(netvale.NetvaleError) as caught:
            netvale.open("no such name")
        self.assertIn("SWITCH:NAME", caught.exception.strerror)


class TheDaemonsEnd(WithDaemon):
    def test_hang_up(self):
        """Objective: a wait for a port ends with an error when the port is detached or its daemon ends."""
        a, b = self.two_ports()
        switch = b.name.split(":")[0]
        with netvale.Control() as control:
            control.detach(switch, "b")
            self.assertRaises(netvale.Closed, b.wait, LIMIT)
            self.assertRaises(netvale.Closed, b.recv)
            control.shutdown()
        self.assertRaises(netvale.Closed, a.wait, LIMIT)
        with self.assertRaises(netvale.NetvaleError) as caught:
            netvale.open("vale0:a")
        self.assertIn("netvale up", caught.exception.strerror)
