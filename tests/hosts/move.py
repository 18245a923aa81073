#!/usr/bin/python3
"""move.py MONITOR CHANNEL: migrates the guest of the QEMU at a QMP socket to the one that waits at a channel, and waits until it has moved."""

import json
import socket
import sys
import time

LIMIT = 120

monitor = socket.socket(socket.AF_UNIX)
monitor.settimeout(LIMIT)
monitor.connect(sys.argv[1])
lines = monitor.makefile("rw")


def run(command, **arguments):
    """Runs a QMP command and returns its result."""
    lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
    lines.flush()
    while True:
        answer = json.loads(lines.readline())
        if "error" in answer:
            sys.exit(f"{command}: {answer['error']['desc']}")
        if "return" in answer:
            return answer["return"]


run("qmp_capabilities")
run("migrate-set-parameters", **{"downtime-limit": 1000, "max-bandwidth": 1 << 32})
run("migrate", uri=f"unix:{sys.argv[2]}")
until = time.monotonic() + LIMIT
while (state := run("query-migrate")).get("status") != "completed":
    if state.get("status") == "failed" or time.monotonic() > until:
        sys.exit(f"the guest has not moved: {state}")
    time.sleep(0.02)
