#!/usr/bin/env python3
"""Datagrams there and back, by IPv4 and IPv6.

    datagrams.py serve ADDRESS,… PORT,…  sends datagrams back to where they come from; prints "ready" first
    datagrams.py ask ADDRESS PORT        sends a few until one comes back
    datagrams.py keep ADDRESS PORT       sends until one is refused; prints a line for each that comes back

Exit status of a client: 0 if one came back, 1 if none did, 2 if one was refused (an ICMP error).
"""

import select
import socket
import sys

ATTEMPTS = 10


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


def client(address, port, keep):
    there = socket_for(address)
    there.settimeout(1)
    there.connect((address, int(port)))
    attempts = 0
    while attempts < ATTEMPTS:
        try:
            there.send(b"a datagram")
            if there.recv(100) != b"a datagram":
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


if sys.argv[1] == "serve":
    serve(*sys.argv[2:4])
else:
    sys.exit(client(*sys.argv[2:4], keep=sys.argv[1] == "keep"))
