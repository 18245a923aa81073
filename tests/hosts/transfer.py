#!/usr/bin/python3
"""transfer.py serve ADDRESS PORT | fetch ADDRESS PORT BYTES: TCP in both directions on one connection, then UDP, from and to one port.

The client sends BYTES random bytes, and the server sends as many of its own; each reports the SHA-256 of what it sent
and received. Then 50 datagrams of several lengths must come back unchanged. The server first prints "ready"."""

import hashlib
import os
import socket
import sys

LENGTHS = [1, 60, 512, 1200, 1400]
TRIES = 20


def get(connection, count):
    total = hashlib.sha256()
    while count > 0:
        some = connection.recv(min(count, 1 << 16))
        if not some:
            sys.exit(f"the connection ended {count} bytes early")
        total.update(some)
        count -= len(some)
    return total.hexdigest()


def put(connection, count):
    # passt discards what its own socket does not take immediately, and waits for the retransmission.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
    data = os.urandom(count)
    connection.sendall(data)
    return hashlib.sha256(data).hexdigest()


def serve(address, port):
    listener = socket.create_server((address, port))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    print("ready", flush=True)
    connection = listener.accept()[0]
    count = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
    got = get(connection, count)
    sent = put(connection, count)
    connection.sendall(got.encode() + sent.encode())
    connection.recv(1)
    while True:
        data, peer = datagrams.recvfrom(1 << 16)
        datagrams.sendto(data, peer)
        if data == b"end":
            break


def fetch(address, port, count):
    connection = socket.create_connection((address, port), timeout=60)
    connection.sendall(count.to_bytes(8, "big"))
    sent = put(connection, count)
    got = get(connection, count)
    said = connection.recv(128, socket.MSG_WAITALL).decode()
    if said != sent + got:
        sys.exit(f"TCP: sent {sent}, got {got}, the server says {said}")
    connection.sendall(b".")
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.settimeout(1)
    datagrams.connect((address, port))
    for data in [os.urandom(length) for length in LENGTHS * 10] + [b"end"]:
        echo(datagrams, data)
    print("done")


def echo(datagrams, data):
    for _ in range(TRIES):
        datagrams.send(data)
        try:
            if datagrams.recv(1 << 16) == data:
                return
        except TimeoutError:
            pass
    sys.exit(f"UDP: {len(data)} bytes do not come back")


if sys.argv[1] == "serve":
    serve(sys.argv[2], int(sys.argv[3]))
else:
    fetch(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
