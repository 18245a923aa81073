#!/usr/bin/python3
"""same_frames.py WANTED GOT: whether two captures have the same frames in the same order; prints how they differ, or how many frames they have.
same_frames.py ALL SOME REST: writes a capture of the frames of ALL that are not in SOME."""

import struct
import sys


def frames(path):
    with open(path, "rb") as file:
        data = file.read()
    at, found = 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def without(path, others, to):
    """Writes the frames that are not among others. tcpdump with "not" would select fewer: an expression that reads past a frame's end is false, and so is its negation."""
    with open(path, "rb") as file, open(to, "wb") as rest:
        rest.write(file.read(24))
        while head := file.read(16):
            frame = file.read(struct.unpack_from("<I", head, 8)[0])
            if frame not in others:
                rest.write(head + frame)


wanted, got = frames(sys.argv[1]), frames(sys.argv[2])
if len(sys.argv) == 4:
    without(sys.argv[1], set(got), sys.argv[3])
    sys.exit()
if wanted != got:
    missing, more = [f for f in wanted if f not in got], [f for f in got if f not in wanted]
    print(f"wanted {len(wanted)} frames, got {len(got)}; {len(missing)} are missing, {len(more)} should not be there")
    for name, some in (("missing", missing), ("should not be there", more)):
        for frame in some[:3]:
            print(f"{name}: {len(frame)} bytes {frame[:64].hex()}")
    sys.exit(1)
print(len(wanted))
