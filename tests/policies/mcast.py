#!/usr/bin/python3
"""Multicast as hosts do it, and attacks.

mcast.py join INTERFACE GROUP…    joins by the kernel's own IGMP or MLD, prints "joined", and leaves at its end
mcast.py send INTERFACE GROUP N   sends N datagrams to a group
mcast.py query INTERFACE SOURCE   sends an IGMPv2 general query
mcast.py joins INTERFACE SOURCE N sends reports for N groups
mcast.py broken INTERFACE N       sends N reports that cannot be read
"""

import ipaddress
import signal
import socket
import struct
import sys
import time


def index(interface):
    return socket.if_nametoindex(interface)


def join(interface, *groups):
    held = []
    for group in map(ipaddress.ip_address, groups):
        if group.version == 4:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            request = struct.pack("4s4si", group.packed, bytes(4), index(interface))
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        else:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            request = group.packed + struct.pack("i", index(interface))
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        held.append(sock)
    print("joined", flush=True)
    signal.pause()


def send(interface, group, count):
    to = ipaddress.ip_address(group)
    if to.version == 4:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("4s4si", bytes(4), bytes(4), index(interface)))
        address = (group, 5000)
    else:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index(interface))
        address = (group, 5000, 0, index(interface))
    for number in range(int(count)):
        sock.sendto(b"%06d" % number, address)
        time.sleep(0.0005)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def igmp(kind, code, group, source, to):
    """A frame with an IGMP message of version 2."""
    message = struct.pack("!BBH4s", kind, code, 0, group)
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    header = struct.pack("!BBHHHBBH4s4s4s", 0x46, 0xC0, 32, 0, 0, 1, 2, 0, source, to, b"\x94\x04\0\0")
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    ethernet = b"\x01\x00\x5e" + bytes([to[1] & 0x7F, to[2], to[3]])
    return ethernet + b"\x02\x00\x00\x00\x00\x99" + b"\x08\x00" + header + message


def raw(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((interface, 0))
    return sock


# The time in which hosts have to answer a query, in tenths of a second. IGMP's default is ten seconds.
TENTHS = 10


def query(interface, source):
    everybody = bytes([224, 0, 0, 1])
    raw(interface).send(igmp(0x11, TENTHS, bytes(4), ipaddress.ip_address(source).packed, everybody))


def joins(interface, source, count):
    sock, source = raw(interface), ipaddress.ip_address(source).packed
    for number in range(int(count)):
        group = bytes([239, 100 + (number >> 16), number >> 8 & 255, number & 255])
        sock.send(igmp(0x16, 0, group, source, group))
        # Slower than the switch reads a port.
        time.sleep(0.003)


def broken(interface, count):
    sock = raw(interface)
    group, source = bytes([239, 7, 7, 7]), bytes([10, 1, 0, 3])
    whole = igmp(0x16, 0, group, source, group)
    for number in range(int(count)):
        cut = whole[: 34 + number % 12]
        sock.send([cut, whole[:-1] + bytes([whole[-1] ^ 1])][number % 2])
        time.sleep(0.003)


{"join": join, "send": send, "query": query, "joins": joins, "broken": broken}[sys.argv[1]](*sys.argv[2:])
