"""A daemon for tests, with its own run directory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import netvale

#: The program under test.
PROGRAM = os.environ.get("NETVALE", "netvale")
#: Seconds for anything that is waited for.
LIMIT = 60.0


def until(what, done):
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end, f"time is up: {what}"
        time.sleep(0.005)


def frame(number: int = 0, length: int = 60) -> bytes:
    """Returns a broadcast frame with a number in it."""
    head = b"\xff" * 6 + bytes.fromhex("020000000001") + b"\x08\x00" + number.to_bytes(4, "big")
    return head + bytes(length - len(head))


def number(data) -> int:
    return int.from_bytes(data[14:18], "big")


class WithDaemon(unittest.TestCase):
    """A daemon for a class of tests; each test uses its own port names."""

    arguments: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="netvale-py-")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = Path(folder.name)
        before = os.environ.get("NETVALE_RUN_DIR")
        os.environ["NETVALE_RUN_DIR"] = folder.name
        cls.addClassCleanup(lambda: os.environ.pop("NETVALE_RUN_DIR") if before is None else os.environ.update(NETVALE_RUN_DIR=before))
        cls.start()

    @classmethod
    def start(cls) -> None:
        cls.daemon = subprocess.Popen(
            [PROGRAM, "--run-dir", str(cls.dir), "up", *cls.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        cls.addClassCleanup(cls.stop, cls.daemon)
        until("the daemon answers", cls.answers)

    @classmethod
    def answers(cls) -> bool:
        assert cls.daemon.poll() is None, "the daemon has ended"
        try:
            with netvale.Control() as control:
                return control.version().name == "netvale"
        except netvale.NetvaleError:
            return False

    @staticmethod
    def stop(daemon) -> None:
        daemon.kill()
        daemon.wait()

    def two_ports(self, **how):
        """Opens two ports on a switch of this test."""
        switch = "vale" + str(abs(hash(self.id())) % 10**6)
        ports = [netvale.open(f"{switch}:{end}", **how) for end in "ab"]
        for port in ports:
            self.addCleanup(port.close)
        return ports

    def receive(self, port, count: int) -> list[bytes]:
        frames: list[bytes] = []
        while len(frames) < count:
            self.assertTrue(port.wait(LIMIT), f"{len(frames)} of {count} frames came")
            frames += port.recv_bytes()
        return frames
