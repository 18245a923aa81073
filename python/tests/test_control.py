"""The control socket."""

import os
import unittest
from unittest import mock

import netvale
from daemon import WithDaemon, frame, until
from netvale.views import Port, made


class Asking(WithDaemon):
    def test_ports(self):
        """Objective: ports are attached, listed, shown, counted and detached, with types."""
        with netvale.Control() as control:
            self.assertEqual(control.version().api, 14)
            port = control.attach("vale0", "null:", name="sink")
            self.assertEqual((port.name, port.kind, port.state), ("vale0:sink", "null", "open"))
            with netvale.open("vale0:a") as a:
                a.send([frame(k) for k in range(10)])
                until("counted", lambda: control.show("vale0:sink").rings[-1].frames == 10)
                shown = control.show("vale0:a")
                self.assertEqual((shown.owner.pid, shown.rings[0].dir, shown.rings[0].frames), (os.getpid(), "in", 10))
                self.assertEqual([p.name for p in control.list("vale0")], ["vale0:a", "vale0:sink"])
                self.assertEqual([(e.mac, e.port) for e in control.table("vale0")], [("02:00:00:00:00:01", "vale0:a")])
                stats = control.stats()
                self.assertEqual({p.name: p.in_frames for p in stats.ports}, {"vale0:a": 10, "vale0:sink": 0})
                self.assertGreater(stats.workers[0].busy_ns, 0)
            control.detach("vale0", "sink")
            self.assertEqual((control.list(), control.switches(), control.evicted()), ([], [], []))

    def test_errors(self):
        """Objective: a refusal has the protocol's code, the daemon's text and its hint."""
        with netvale.Control() as control:
            with self.assertRaises(netvale.ControlError) as caught:
                control.show("vale0:x")
            self.assertEqual(caught.exception.code, -32001)
            self.assertIn("vale0:x", str(caught.exception))
            self.assertIn("netvale list", caught.exception.hint)
            self.assertRaises(netvale.ControlError, control.attach, "vale0", "null:", nonsense=1)


class Alone(unittest.TestCase):
    def test_later_releases(self):
        """Objective: fields that a later release adds are skipped."""
        port = made(Port, {"name": "a", "kind": "new", "state": "open", "vnet_hdr": 0, "lossless": False, "later": {"x": 1}})
        self.assertEqual((port.kind, port.rings, port.owner), ("new", [], None))

    def test_where(self):
        """Objective: the run directory is found by the rules of netvale's programs, and the error for an absent daemon has its path."""
        with mock.patch.dict(os.environ, {"NETVALE_RUN_DIR": "/nowhere"}):
            with self.assertRaises(netvale.NetvaleError) as caught:
                netvale.Control()
            self.assertIn("/nowhere/control.sock", str(caught.exception))
        from netvale.control import run_dir

        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": "/run/user/7"}), mock.patch("os.geteuid", return_value=7):
            os.environ.pop("NETVALE_RUN_DIR", None)
            self.assertEqual(str(run_dir()), "/run/user/7/netvale")
