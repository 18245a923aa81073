"""A socket for scapy: ``sniff(opened_socket=NetvaleSocket("vale0:a"))``, ``sendp(frames, socket=…)``, ``srp1(…)`` with ``conf.L2socket``."""

from __future__ import annotations

import time
from typing import Any

from scapy.error import Scapy_Exception
from scapy.layers.l2 import Ether
from scapy.supersocket import SuperSocket

from .port import Port


class NetvaleSocket(SuperSocket):
    """Sends and receives Ethernet frames on a port.

    After ``conf.L2socket = conf.L2listen = NetvaleSocket``, ``iface=`` takes a port's name.
    """

    desc = "Ethernet frames on a netvale port"

    def __init__(self, iface: str | Port, type: int = 3, promisc: Any = None, filter: str | None = None, nofilter: int = 0, monitor: Any = None) -> None:
        if filter is not None and not nofilter:
            raise Scapy_Exception("a port has no filters: use `lfilter`, or libpcap through `netvale run`")
        self.port = iface if isinstance(iface, Port) else Port(str(iface))
        self.ins = self.outs = self.port
        self.iface = self.port.name
        self.closed = False

    def fileno(self) -> int:
        return self.port.fileno()

    def recv_raw(self, x: int = 65535) -> tuple[Any, bytes | None, float | None]:
        """Returns the next frame; waits for it if necessary."""
        frames = self.port.recv_bytes(1)
        while not frames:
            self.port.wait()
            frames = self.port.recv_bytes(1)
        return Ether, frames[0][:x], time.time()

    def send(self, x: Any) -> int:
        """Sends one frame; waits for room if necessary."""
        data = bytes(x)
        if hasattr(x, "sent_time"):
            x.sent_time = time.time()
        self.port.sendall([data])
        return len(data)

    def close(self) -> None:
        self.closed = True
        # scapy also closes sockets whose creation failed.
        if hasattr(self, "port"):
            self.port.close()
