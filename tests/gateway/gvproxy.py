"""Guests and clients for gvproxy.sh.

guest KIND SOCKET NAME MAC   a guest in this process' own namespaces: a TAP whose frames go over the socket
answers API FILE             asks what FILE lists, and compares the answers
record API FILE              writes the answers to FILE, from the gvproxy that is the judge
tunnel API IP PORT PATH      an HTTP request through /tunnel
notices SOCKET FILE          writes notifications to FILE as they come
ssh …                        in the place of ssh: a socket whose connections go to the guest's port by ProxyCommand
"""

import contextlib
import fcntl
import http.client
import json
import os
import select
import socket
import struct
import subprocess
import sys

TUNSETIFF = 0x400454CA
IFF_TAP_NO_PI = 0x1002
SIOCSIFHWADDR = 0x8924
PORT = 9099


def tap(name, mac):
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        address = bytes.fromhex(mac.replace(":", ""))
        fcntl.ioctl(probe, SIOCSIFHWADDR, struct.pack("16sH6s8x", name.encode(), 1, address))
    return device


class Frames:
    """Frames on a socket: with a length before each, or one in each message."""

    def __init__(self, kind, path):
        kinds = {"seqpacket": socket.SOCK_SEQPACKET, "unixgram": socket.SOCK_DGRAM}
        self.socket = socket.socket(socket.AF_UNIX, kinds.get(kind, socket.SOCK_STREAM))
        if kind == "unixgram":
            self.socket.bind(path + ".guest")
        self.socket.connect(path)
        if kind == "unixgram":
            self.socket.send(b"VFKT")
        self.lengths = {"qemu": ">I", "hyperkit": "<H"}.get(kind)
        if kind == "hyperkit":
            self.socket.sendall(b"POST /connect HTTP/1.1\r\nHost: gvproxy\r\nContent-Length: 0\r\n\r\n")
        self.bytes = b""

    def send(self, frame):
        head = struct.pack(self.lengths, len(frame)) if self.lengths else b""
        self.socket.sendall(head + frame)

    def receive(self):
        """The frames that have arrived; none at the end."""
        piece = self.socket.recv(1 << 17)
        if not piece:
            return None
        if not self.lengths:
            return [piece]
        self.bytes += piece
        frames = []
        size = struct.calcsize(self.lengths)
        while len(self.bytes) >= size:
            end = size + struct.unpack(self.lengths, self.bytes[:size])[0]
            if len(self.bytes) < end:
                break
            frames.append(self.bytes[size:end])
            self.bytes = self.bytes[end:]
        return frames


def guest(kind, path, name, mac):
    device = tap(name, mac)
    frames = Frames(kind, path)
    print("attached", flush=True)
    while True:
        for ready in select.select([device, frames.socket], [], [])[0]:
            if ready == device:
                # Without an interface that is up, there is no reader.
                with contextlib.suppress(BlockingIOError):
                    frames.send(os.read(device, 1 << 16))
                continue
            received = frames.receive()
            if received is None:
                return
            for frame in received:
                # The interface is not up yet.
                with contextlib.suppress(OSError):
                    os.write(device, frame)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("unix", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def ask(api, method, path, body):
    connection = UnixConnection(api)
    connection.request(method, path, body)
    answer = connection.getresponse()
    kind = answer.getheader("Content-Type") or ""
    return [answer.status, kind, answer.read().decode()]


def all_answers(api, questions):
    """The answers, while another program has a port."""
    with socket.create_server(("127.0.0.1", PORT)):
        return [ask(api, *question) for question in questions]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def answers(api, path):
    recorded = read(path)
    found = all_answers(api, [entry["ask"] for entry in recorded])
    wrong = [(e["ask"], e["answer"], f) for e, f in zip(recorded, found, strict=True) if e["answer"] != f]
    for question, wanted, got in wrong:
        print(f"{question}:\n  gvproxy {wanted}\n  here    {got}")
    assert not wrong, f"{len(wrong)} of {len(recorded)} answers differ"
    print(f"{len(recorded)} answers are gvproxy's")


def record(api, path):
    questions = [entry["ask"] for entry in read(path)]
    found = all_answers(api, questions)
    lines = [json.dumps({"ask": q, "answer": a}) for q, a in zip(questions, found, strict=True)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


def tunnel(api, ip, port, path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(api)
        client.sendall(f"POST /tunnel?ip={ip}&port={port} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        assert client.recv(2) == b"OK"
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            sys.stdout.buffer.write(answer.read().split(b"\r\n\r\n", 1)[1])


def notices(path, file):
    with socket.socket(socket.AF_UNIX) as listener, open(file, "w", encoding="utf-8") as out:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            with client, client.makefile() as lines:
                out.write(lines.read())
                out.flush()


def ssh(words):
    """Listens where -L says, and joins each connection with the guest's port, by the ProxyCommand."""
    local, _ = words[words.index("-L") + 1].split(":")
    command = next(word.partition("=")[2] for word in words if word.startswith("ProxyCommand="))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(local)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(local)
        listener.listen()
        while True:
            client, _ = listener.accept()
            subprocess.Popen(command, shell=True, stdin=client, stdout=client)
            client.close()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "ssh":
        ssh(rest)
    else:
        parts = [guest, answers, record, tunnel, notices]
        {part.__name__: part for part in parts}[what](*rest)
