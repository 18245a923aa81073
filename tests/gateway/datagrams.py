#!/usr/bin/env python3
"""Datagrams there and back, by IPv4 and IPv6.

    datagrams.py serve ADDRESS,… PORT,…  sends datagrams back to where they come from; prints "ready" first
    datagrams.py ask ADDRESS PORT        sends a few until one comes back
    datagrams.py keep ADDRESS PORT       sends until one is refused; prints a line for each that comes back
    datagrams.py long ADDRESS PORT       as ask, with 1,400 bytes that may be fragmented
    datagrams.py mtu ADDRESS PORT        sends 1,400 bytes that must not be fragmented until the kernel knows of a smaller
                                         MTU; prints it

Exit status of a client: 0 if one came back, 1 if none did, 2 if one was refused (an ICMP error).
"""

import select
import socket
import sys
import time

ATTEMPTS = 10
LONG = b"long" * 350
# linux/in.h and linux/in6.h: for each IP version, the level, the options MTU_DISCOVER and MTU. Python has no names.
LEVELS = {socket.AF_INET: (socket.IPPROTO_IP, 10, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 24)}
MAY_BE_FRAGMENTED = 0
WHOLE = 2


def socket_for(address):
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)


def serve(addresses, ports):
    sockets = []
    for address in addresses.split(","):
        for port in ports.split(","):
            there = socket_for(address)
            there.bind((address, int(port)))
            sockets.append(there)
    print("ready", flush=True)
    while True:
        for there in select.select(sockets, [], [])[0]:
            there.sendto(*there.recvfrom(2000))


def long_socket(address, whole):
    there = socket_for(address)
    level, discover, _ = LEVELS[there.family]
    there.setsockopt(level, discover, WHOLE if whole else MAY_BE_FRAGMENTED)
    return there


def path_mtu(address, port):
    there = long_socket(address, whole=True)
    there.connect((address, int(port)))
    level, _, mtu = LEVELS[there.family]
    end = time.monotonic() + ATTEMPTS
    while time.monotonic() < end:
        try:
            there.send(LONG)
        except OSError:
            print(there.getsockopt(level, mtu))
            return 0
        select.select([there], [], [], 0.1)
    print("no datagram was too long")
    return 1


def client(address, port, keep, datagram=b"a datagram"):
    there = long_socket(address, whole=False) if datagram == LONG else socket_for(address)
    there.settimeout(1)
    there.connect((address, int(port)))
    attempts = 0
    while attempts < ATTEMPTS:
        try:
            there.send(datagram)
            if there.recv(2000) != datagram:
                sys.exit("another datagram came back")
        except TimeoutError:
            attempts += 1
            continue
        except OSError as why:
            print(f"refused: {why}")
            return 2
        if not keep:
            return 0
        attempts = 0
        print("back", flush=True)
    print("no answer")
    return 1


command, *where = sys.argv[1:4]
if command == "serve":
    serve(*where)
elif command == "mtu":
    sys.exit(path_mtu(*where))
else:
    sys.exit(client(*where, command == "keep", LONG if command == "long" else b"a datagram"))
