"""A client of the daemon's control socket: JSON-RPC 2.0, one object per line."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping

from .errors import ControlError, NetvaleError
from .views import Address, Evicted, Groups, Port, Stats, Switch, Version, made, summed


SYSTEM = Path("/run/netvale")


def run_dir() -> Path:
    """Returns the directory of the daemon's sockets, by the rules of all netvale programs."""
    named = os.environ.get("NETVALE_RUN_DIR")
    if named:
        return Path(named)
    if os.geteuid() == 0:
        return SYSTEM
    own = _own_dir()
    return SYSTEM if not _listens(own) and _listens(SYSTEM) else own


def _listens(directory: Path) -> bool:
    """Returns whether a daemon listens there, without a connection: the kernel's answer to another socket type shows it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(os.fspath(directory / "control.sock")) == errno.EPROTOTYPE


def _last_resort() -> Path:
    return Path(f"/tmp/netvale-{os.geteuid()}")


def _own_dir() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return Path(runtime, "netvale")
    last = _last_resort()
    if last.exists() and last.lstat().st_uid != os.geteuid():
        # Any user can create this directory and answer in place of the daemon.
        raise NetvaleError(1, f"{last} belongs to another user")
    return last


class Control:
    """A connection to the daemon. ``with netvale.Control() as control: …``"""

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, timeout: float | None = 30) -> None:
        path = Path(directory or run_dir(), "control.sock")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(os.fspath(path))
        except OSError as error:
            self._socket.close()
            text = f"no netvale daemon at {path}: {error.strerror}; start one with 'netvale up'"
            if error.errno == errno.EACCES:
                text = f"this user may not connect to {path}; 'netvale list' shows who may"
            raise NetvaleError(error.errno or 0, text) from None
        if path.parent == _last_resort() and self._listener() not in (0, os.geteuid()):
            self._socket.close()
            raise NetvaleError(1, f"another user listens at {path}")
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")
        self._last = 0

    def _listener(self) -> int:
        """Returns the user ID of the listener at the other end."""
        size = struct.calcsize("3i")
        uid: int = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]
        return uid

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Calls a method by its name in the protocol. Returns the JSON result."""
        self._last += 1
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": self._last, "method": method}
        if params:
            request["params"] = params
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        line = self._lines.readline()
        if not line:
            raise NetvaleError(104, "the daemon closed the connection")
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            data = error.get("data") or {}
            raise ControlError(error["code"], error["message"], data.get("hint"), data.get("errno"))
        return answer["result"]

    def version(self) -> Version:
        """Returns name and version of the daemon."""
        return made(Version, self.call("version"))

    def switches(self) -> list[Switch]:
        """Lists all switches."""
        return [made(Switch, one) for one in self.call("switch.list")]

    def table(self, switch: str) -> list[Address]:
        """Returns the forwarding table of a switch."""
        return [made(Address, one) for one in self.call("switch.table", {"switch": switch})]

    def groups(self, switch: str) -> Groups:
        """Returns the multicast groups of a switch and their members."""
        return made(Groups, self.call("switch.groups", {"switch": switch}))

    def attach(self, switch: str, port: str, **options: Any) -> Port:
        """Attaches a port: ``control.attach("vale0", "tap:nv0", mtu=9000)``. Options are those of the configuration file."""
        params: dict[str, Any] = {"switch": switch, "port": port}
        if options:
            params["options"] = options
        return made(Port, self.call("port.attach", params))

    def detach(self, switch: str, port: str) -> None:
        """Detaches a port from its switch."""
        self.call("port.detach", {"switch": switch, "port": port})

    def set(self, port: str, **policies: Any) -> Port:
        """Changes policies of the port with this full name while frames pass; None restores a default."""
        return made(Port, self.call("port.set", {"port": port, "set": policies}))

    def list(self, switch: str | None = None) -> list[Port]:
        """Lists the ports of one switch, or all ports and pipes, without their rings."""
        return [made(Port, one) for one in self.call("port.list", {"switch": switch} if switch else None)]

    def show(self, port: str) -> Port:
        """Describes one port with its rings."""
        return made(Port, self.call("port.show", {"port": port}))

    def evicted(self) -> list[Evicted]:  # type: ignore[valid-type]
        """Lists the last programs that lost their port."""
        return [made(Evicted, one) for one in self.call("port.evicted")]

    def stats(self) -> Stats:
        """Returns all counters at one moment."""
        answer = self.call("stats.all")
        ports, after = answer["ports"], answer.get("next")
        while after:
            rest = self.call("stats.all", {"after": after})
            ports, after = ports + rest["ports"], rest.get("next")
        return made(Stats, {**answer, "ports": [summed(port) for port in ports]})

    def shutdown(self) -> None:
        """Ends the daemon."""
        self.call("shutdown")

    def close(self) -> None:
        """Closes the connection."""
        self._lines.close()
        self._socket.close()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
