"""Measures frames per second sent (tx) or received (rx) from Python: rate.py tx|rx PORT SECONDS"""

import sys
import time

import netvale

FRAME = b"\xff" * 6 + bytes.fromhex("020000000001") + b"\x08\x00" + bytes(46)


def tx(port: netvale.Port, end: float) -> int:
    count, batch = 0, [FRAME] * 256
    while time.monotonic() < end:
        count += port.send(batch) or port.wait_room(0.1) * 0
    return count


def rx(port: netvale.Port, end: float) -> int:
    count = 0
    while time.monotonic() < end:
        count += len(port.recv()) or port.wait(0.1) * 0
    return count


with netvale.open(sys.argv[2]) as port:
    if sys.argv[1] == "rx":
        port.wait(60)
    start = time.monotonic()
    count = {"tx": tx, "rx": rx}[sys.argv[1]](port, start + float(sys.argv[3]))
    print(f"{count / (time.monotonic() - start) / 1e6:.2f} Mpps")
