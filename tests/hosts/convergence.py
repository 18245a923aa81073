#!/usr/bin/env python3
"""convergence.py MOVES: how long other hosts take to follow an address that moves back and forth between two hosts.

The namespaces are `a` (netvale, VTEP 10.99.0.1, device nvl100 and nvx100 of its agent), `c` (the kernel, 10.99.0.2), `n` (an observer with
netvale), `k` (an observer with the kernel), `m` (devices ma and mc, through which the address is at `a` or at `c`) and `pn` (device pn, behind `n`). Prints one
JSON object: for each kind of host to which the address moves, a list of moves with these times in milliseconds after the first frame of the address:

  advertised  until the kernel of the new host has the address as a local one
  kernel      until the kernel of `k` has the new VTEP
  mirror      until the kernel of `n` has it, in the devices that its agent mirrors
  netvale     until a frame from `pn` to the address arrives at the new VTEP; one is sent every half millisecond
  left        until the kernel of the host that had the address has it behind the tunnel
"""

import ctypes
import errno
import json
import select
import socket
import struct
import sys
import time

MOVES = int(sys.argv[1])
MOVED, PROBER = bytes([2, 0, 0, 0, 0, 0xD]), bytes([2, 0, 0, 0, 0, 0xE])
VTEPS = {"a": socket.inet_aton("10.99.0.1"), "c": socket.inet_aton("10.99.0.2")}
PROBES = 0.0005
ETH_P_ALL = 3
# Seconds after which an address that has not arrived sends another frame, as a station does sooner or later; and after which the program gives up.
AGAIN, LIMIT = 2, 40
# linux/rtnetlink.h, linux/neighbour.h, sched.h.
RTMGRP_NEIGH, RTM_NEWNEIGH, AF_BRIDGE, NDA_DST, NDA_LLADDR, NDA_MASTER, CLONE_NEWNET = 4, 28, 7, 1, 2, 9, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def enter(space):
    """Enters a namespace, in which this thread's next sockets are then created."""
    with open(f"/run/netns/{space}") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            sys.exit(f"{space}: {ctypes.get_errno()}")


def packets(space, device, protocol=0):
    enter(space)
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind((device, protocol))
    raw.setblocking(False)
    return raw


def neighbors(space):
    """A socket for a namespace's neighbour notifications, and the names of its devices by index."""
    enter(space)
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    netlink.bind((0, RTMGRP_NEIGH))
    netlink.setblocking(False)
    return netlink, dict(socket.if_nameindex())


def entries(data):
    """The device and the attributes of each new entry for the address that moves."""
    while len(data) >= 28:
        length, kind = struct.unpack("=IH", data[:6])
        family, device = data[16], struct.unpack("=i", data[20:24])[0]
        attributes, at = {}, 28
        while at + 4 <= length:
            size, name = struct.unpack("=HH", data[at : at + 4])
            attributes[name] = data[at + 4 : at + size]
            at += (max(size, 4) + 3) & ~3
        if kind == RTM_NEWNEIGH and family == AF_BRIDGE and attributes.get(NDA_LLADDR) == MOVED:
            yield device, attributes
        data = data[(length + 3) & ~3 :]


def drain(sockets):
    for one in sockets:
        try:
            while True:
                one.recv(65536)
        except BlockingIOError:
            pass


def sent(one, frame):
    """Sends a frame. Returns whether there was room; there is none while the switch gets no processor time."""
    try:
        return one.send(frame) > 0
    except OSError as error:
        if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
            raise
        return False


ways = {"a": packets("m", "ma"), "c": packets("m", "mc")}
prober = packets("pn", "pn")
arrivals = {host: packets(host, "u0", ETH_P_ALL) for host in VTEPS}
kernels = {host: neighbors(host) for host in ("a", "c", "k", "n")}
arp = b"\xff" * 6 + MOVED + struct.pack("!HHHBBH", 0x806, 1, 0x800, 6, 4, 1) + MOVED + bytes([192, 168, 7, 4]) + bytes(6) + bytes([192, 168, 7, 4])
probe = MOVED + PROBER + b"\x88\xb5" + bytes(46)
# The VTEP of `n`, the source of the probes.
observer = socket.inet_aton("10.99.0.4")


def seen(host, data, to):
    """The events of the move that a notification of the host's kernel reports."""
    for device, attributes in entries(data):
        name = kernels[host][1].get(device, "")
        is_bridges = NDA_MASTER in attributes
        if host == to and is_bridges and name in ("nvl100", "mc"):
            yield "advertised"
        if host in VTEPS and host != to and is_bridges and name in ("nvx100", "vx100"):
            yield "left"
        if not is_bridges and attributes.get(NDA_DST) == VTEPS[to] and name == {"k": "vx100", "n": "nvx100"}.get(host):
            yield {"k": "kernel", "n": "mirror"}[host]


def is_probe(data):
    """Whether it is a VXLAN datagram from `n` with a frame to the address that moves."""
    return data[12:14] == b"\x08\x00" and data[26:30] == observer and data[36:38] == struct.pack("!H", 4789) and data[50:56] == MOVED


def move(to, has_moved=True):
    drain([*arrivals.values(), *(netlink for netlink, _ in kernels.values())])
    times, wanted = {}, {"advertised", "kernel", "mirror", "netvale"} | ({"left"} if has_moved else set())
    while True:
        begin = due = time.monotonic()
        if sent(ways[to], arp):
            break
    again = begin + AGAIN
    while wanted - times.keys():
        now = time.monotonic()
        if now - begin > LIMIT:
            sys.exit(f"the move to {to} has not arrived: {times}")
        if now >= again:
            sent(ways[to], arp)
            again = now + AGAIN
        if now >= due:
            sent(prober, probe)
            due = now + PROBES
        readable = [arrivals[to], *(netlink for netlink, _ in kernels.values())]
        ready, _, _ = select.select(readable, [], [], max(0, due - time.monotonic()))
        now = (time.monotonic() - begin) * 1000
        for one in ready:
            data = one.recv(65536)
            if one is arrivals[to]:
                found = ["netvale"] if is_probe(data) else []
            else:
                found = seen(next(host for host, (netlink, _) in kernels.items() if netlink is one), data, to)
            for what in found:
                times.setdefault(what, round(now, 2))
    return times


# The starting point, which is not measured.
move("a", has_moved=False)
moves = {"kernel": [], "netvale": []}
for number in range(MOVES):
    # Out of step with anything that happens every second.
    time.sleep(0.7 + number % 10 * 0.037)
    for to, kind in (("c", "kernel"), ("a", "netvale")):
        moves[kind].append(move(to))
        time.sleep(0.7 + number % 7 * 0.053)
print(json.dumps(moves))
