#!/usr/bin/env python3
"""bgp.py PEER LOCAL VTEPS ADDRESSES [FIRST]: a BGP speaker that announces addresses of many VTEPs (EVPN, RFC 7432 and 8365), VNI 100, AS 65000.

Addresses are counted from FIRST. VTEP n is 10.98.(n / 200).(n % 200 + 1). Once the session is up, the program announces them and prints "loaded".
Then it reads commands, one a line, until the end of its input:
"move RATE SECONDS" moves addresses to other VTEPs and prints "last ADDRESS VTEP" and "moved COUNT";
"withdraw" withdraws a tenth of the addresses and prints "withdrawn COUNT";
"leave FIRST COUNT" withdraws these VTEPs with all addresses behind them and prints "left COUNT";
"say ADDRESS VTEP SEQUENCE [sticky]" announces any address behind any VTEP, "unsay ADDRESS VTEP" withdraws it; both print "said".
"""

import socket
import struct
import sys
import threading
import time

AS, VNI, HOLD = 65000, 100, 90
OPEN, UPDATE, NOTIFICATION, KEEPALIVE = 1, 2, 3, 4
# Addresses in one UPDATE: its length stays below 4,096 bytes.
CHUNK = 80


def vtep(n):
    return bytes([10, 98, n // 200, n % 200 + 1])


def mac(n):
    return bytes([2, 1]) + struct.pack("!I", n)


def rd(ip):
    return struct.pack("!H", 1) + ip + struct.pack("!H", 2)


def route(address, ip):
    label = struct.pack("!I", VNI)[1:]
    body = rd(ip) + bytes(14) + b"\x30" + address + b"\x00" + label
    return bytes([2, len(body)]) + body


def macip(n, at):
    return route(mac(n), vtep(at))


def multicast(at):
    body = rd(vtep(at)) + bytes(4) + b"\x20" + vtep(at)
    return bytes([3, len(body)]) + body


def attribute(flags, kind, value):
    return struct.pack("!BBH", flags | 0x10, kind, len(value)) + value


def message(kind, body=b""):
    return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), kind) + body


def update(attributes):
    return message(UPDATE, struct.pack("!HH", 0, len(attributes)) + attributes)


def reach(ip, routes, sequence=0, pmsi=False, sticky=False):
    communities = struct.pack("!BBHI", 0, 2, AS, VNI) + bytes([3, 12, 0, 0, 0, 0, 0, 8])
    if sequence or sticky:
        communities += struct.pack("!BBBBI", 6, 0, sticky, 0, sequence)
    attributes = attribute(0x40, 1, b"\x00") + attribute(0x40, 2, b"") + attribute(0x40, 5, struct.pack("!I", 100))
    attributes += attribute(0xC0, 16, communities)
    if pmsi:
        attributes += attribute(0xC0, 22, b"\x00\x06" + struct.pack("!I", VNI)[1:] + ip)
    return update(attributes + attribute(0x80, 14, struct.pack("!HBB", 25, 70, 4) + ip + b"\x00" + b"".join(routes)))


def unreach(routes):
    return update(attribute(0x80, 15, struct.pack("!HB", 25, 70) + b"".join(routes)))


class Speaker:
    def __init__(self, peer, local):
        self.lock = threading.Lock()
        self.socket = self.connect(peer, local)
        capabilities = struct.pack("!BBHBB", 1, 4, 25, 0, 70) + struct.pack("!BBI", 65, 4, AS)
        body = struct.pack("!BHH", 4, AS, HOLD) + socket.inet_aton(local)
        self.send(message(OPEN, body + bytes([len(capabilities) + 2, 2, len(capabilities)]) + capabilities))
        self.buffer = b""
        while self.receive() != OPEN:
            pass
        self.send(message(KEEPALIVE))
        while self.receive() != KEEPALIVE:
            pass
        threading.Thread(target=self.listen, daemon=True).start()

    @staticmethod
    def connect(peer, local):
        for _ in range(200):
            try:
                return socket.create_connection((peer, 179), source_address=(local, 0))
            except OSError:
                time.sleep(0.1)
        sys.exit(f"no BGP at {peer}")

    def send(self, data):
        with self.lock:
            self.socket.sendall(data)

    def receive(self):
        while True:
            if len(self.buffer) >= 19:
                length, kind = struct.unpack("!HB", self.buffer[16:19])
                if len(self.buffer) >= length:
                    body, self.buffer = self.buffer[19:length], self.buffer[length:]
                    if kind == NOTIFICATION:
                        sys.exit(f"the peer ends the session: {body[:2].hex()}")
                    return kind
            data = self.socket.recv(65536)
            if not data:
                sys.exit("the peer has closed the session")
            self.buffer += data

    def listen(self):
        while True:
            if self.receive() == KEEPALIVE:
                self.send(message(KEEPALIVE))


def main():
    peer, local, (vteps, count, first) = sys.argv[1], sys.argv[2], map(int, [*sys.argv[3:], "0"][:3])
    speaker = Speaker(peer, local)
    places = [(n % vteps, 0) for n in range(count)]
    for at in range(vteps):
        speaker.send(reach(vtep(at), [multicast(at)], pmsi=True))
        own = list(range(at, count, vteps))
        for begin in range(0, len(own), CHUNK):
            speaker.send(reach(vtep(at), [macip(first + n, at) for n in own[begin : begin + CHUNK]]))
    print("loaded", flush=True)
    following = 0
    for line in sys.stdin:
        words = line.split()
        if words[0] == "move":
            rate, seconds = int(words[1]), float(words[2])
            begin, done = time.monotonic(), 0
            while (now := time.monotonic() - begin) < seconds:
                while done < now * rate:
                    n = following % (count // 2)
                    at, sequence = places[n]
                    places[n] = ((at + 1) % vteps, sequence + 1)
                    speaker.send(reach(vtep(places[n][0]), [macip(first + n, places[n][0])], sequence + 1) + unreach([macip(first + n, at)]))
                    following, done = following + 1, done + 1
                time.sleep(0.002)
            last = (following - 1) % (count // 2)
            print("last", ":".join(f"{byte:02x}" for byte in mac(first + last)), socket.inet_ntoa(vtep(places[last][0])), flush=True)
            print("moved", done, flush=True)
        elif words[0] == "withdraw":
            gone = range(count - count // 10, count)
            for begin in range(0, len(gone), CHUNK):
                speaker.send(unreach([macip(first + n, places[n][0]) for n in gone[begin : begin + CHUNK]]))
            print("withdrawn", len(gone), flush=True)
        elif words[0] == "leave":
            leaving = range(int(words[1]), int(words[1]) + int(words[2]))
            for at in leaving:
                speaker.send(unreach([multicast(at)]))
            gone = [n for n in range(count) if places[n][0] in leaving]
            for begin in range(0, len(gone), CHUNK):
                speaker.send(unreach([macip(first + n, places[n][0]) for n in gone[begin : begin + CHUNK]]))
            print("left", len(gone), flush=True)
        elif words[0] in ("say", "unsay"):
            address, ip = bytes.fromhex(words[1].replace(":", "")), socket.inet_aton(words[2])
            if words[0] == "say":
                speaker.send(reach(ip, [route(address, ip)], int(words[3]), sticky="sticky" in words))
            else:
                speaker.send(unreach([route(address, ip)]))
            print("said", flush=True)


main()
