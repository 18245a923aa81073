"""Switches and plugs for vde_switch.py: processes that end with it, and what they say."""

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import time

LIMIT = 20.0
NOBODY = "02:00:00:00:00:99"
ALL = "ff:ff:ff:ff:ff:ff"


def until(what, holds, limit=LIMIT):
    """Waits until something holds, and returns what that is."""
    end = time.monotonic() + limit
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {limit} s")
        time.sleep(0.01)


def frame(to, by, length=100, vlan=None, kind=0x88B5, mark=0):
    """A frame with that length, and a tag if a VLAN is named."""
    head = bytes.fromhex(to.replace(":", "")) + bytes.fromhex(by.replace(":", ""))
    if vlan is not None:
        head += struct.pack("!HH", 0x8100, vlan)
    head += struct.pack("!HI", kind, mark)
    return head + bytes(length - len(head))


def listens(path):
    """Whether somebody listens there. A leftover looks the same otherwise."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def address(number):
    return f"02:00:00:00:00:{number:02x}"


class Switch:
    """A running switch: ours, or Debian's."""

    def __init__(self, program, folder, *options, stdin=subprocess.PIPE, ready=True):
        self.folder = os.path.join(folder, "ctl")
        self.mgmt = os.path.join(folder, "mgmt")
        command = [program, "--sock", self.folder, "--mgmt", self.mgmt, *options]
        self.process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        if ready:
            until("the switch is ready", lambda: listens(self.mgmt) or self.process.poll() is not None)
            assert self.process.poll() is None, self.process.stderr.read()

    def end(self):
        """Ends it by the end of its standard input."""
        self.process.stdin.close()
        status = self.process.wait(LIMIT)
        assert status == 0, (status, self.process.stderr.read())

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self.process.poll() is None:
            self.end()
        self.process.kill()
        self.process.wait()

    def console(self):
        return Console(self.mgmt)

    def daemon_of(self):
        """The process of the daemon below the console."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as children:
            return int(children.read().split()[0])


class Console:
    """A connection to the management socket."""

    PROMPT = b"\nvde$ "

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT)
        self.got = b""
        until("the management socket takes connections", lambda: self.socket.connect_ex(path) == 0)
        self.banner = self.read()

    def read(self):
        """What comes until the next prompt, or the end."""
        while self.PROMPT not in self.got:
            piece = self.socket.recv(65536)
            if not piece:
                last, self.got = self.got, b""
                return last
            self.got += piece
        answer, self.got = self.got.split(self.PROMPT, 1)
        return answer

    def ask(self, line):
        self.socket.sendall(line.encode() + b"\n")
        return self.read().decode()

    def does(self, *lines):
        for line in lines:
            said = self.ask(line)
            assert said == "1000 Success\n", (line, said)

    def close(self):
        self.socket.close()


class Plug:
    """Debian's vde_plug: frames behind their lengths, by its standard input and output."""

    def __init__(self, folder, port=None):
        target = f"vde://{folder}" + (f"[{port}]" if port else "")
        self.process = subprocess.Popen(
            ["vde_plug", target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.got = b""

    def send(self, *frames):
        for one in frames:
            self.process.stdin.write(struct.pack("!H", len(one)) + one)

    def receive(self, limit=LIMIT):
        """The next frame; None if there is none within the time."""
        end = time.monotonic() + limit
        while True:
            if len(self.got) >= 2:
                length = struct.unpack("!H", self.got[:2])[0]
                if len(self.got) >= 2 + length:
                    found, self.got = self.got[2 : 2 + length], self.got[2 + length :]
                    return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return None
            self.got += piece

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


class Plugs:
    """Plugs of one switch, each once it passes frames."""

    def __init__(self, switch, console, ports):
        self.all = {port: Plug(switch.folder, port) for port in ports}
        for port in ports:
            active = f"Port {port:04} "
            until(f"port {port} has a plug", lambda active=active: active in console.ask("port/print"))

    def __getitem__(self, port):
        return self.all[port]

    def reached(self, sender, sent, quiet=0.4):
        """Sends a frame at a port, and returns what comes at which others: as many as there are, or none for a while."""
        self.all[sender].send(sent)
        found = {}
        end = time.monotonic() + quiet
        for port, plug in self.all.items():
            if (got := plug.receive(max(0.02, end - time.monotonic()))) is not None:
                found[port] = got
        return found

    def end(self):
        for plug in self.all.values():
            plug.end()


def raw_plug(folder, own, version=3, magic=0xFEEDFACE, kind=0, port=0):
    """A request to the control socket. Returns the answer's path, or None if the switch hangs up."""
    control = socket.socket(socket.AF_UNIX)
    control.settimeout(LIMIT)
    control.connect(os.path.join(folder, "ctl"))
    request = struct.pack("=III", magic, version, (port << 8) | kind)
    request += struct.pack("=H", socket.AF_UNIX) + own.encode().ljust(108, b"\0")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.sendall(request + b"a test\0")
    try:
        answer = control.recv(200)
    except ConnectionResetError:
        answer = b""
    if not answer:
        control.close()
        return None, None
    return control, answer[2:].split(b"\0")[0].decode()


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def end_process(pid, how=signal.SIGTERM):
    os.kill(pid, how)
    until(f"process {pid} ends", lambda: is_gone(pid))
