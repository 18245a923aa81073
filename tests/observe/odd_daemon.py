#!/usr/bin/env python3
"""odd_daemon.py SOCKET: answers like a daemon, and beside the socket like gateways, whose names, notes and reasons are markup, scripts and marks that reverse the direction of text."""

import json
import os
import socketserver
import sys
import threading
import time

ODD = "<img src=x onerror=\"document.title='taken'\">"
TURNED = "\u202egnp.exe\u0000\n"
NAMES = [f"vale0:{ODD}", f"vale0:{TURNED}", "vale0:" + "w" * 200, "vale0:'\"&amp;\\${x}`", "vale0:__proto__"]
RING = {"frames": 0, "bytes": 0, "batches": 0}


def stats():
    passed = time.monotonic_ns() // 1_000_000
    ring = {"frames": passed, "bytes": 60 * passed, "batches": passed // 8}
    # Bounds that no histogram has, not in order, and the last count decreases.
    parts = [{"up_to_ns": 7, "frames": passed}, {"up_to_ns": 3, "frames": 0}, {"frames": 2**40 - passed}]
    ports = [
        {"name": name, "switch": "vale0", "kind": "local", "state": "open", "in": [ring], "out": [RING], "in_drops": {ODD: passed, "__proto__": 1},
         "kicks_sent": 0, "kicks_suppressed": 0, "kicks_received": 0, "latency": {"sum_ns": passed, "parts": parts}}
        for name in NAMES]
    worker = {"index": 0, "busy_ns": passed * 500_000, "polled_ns": 0, "slept_ns": passed * 500_000, "ingresses": 1}
    switch = {"name": "vale0", "ports": len(NAMES), "addresses": 1, "table_size": 9}
    return {"now_ns": passed * 1_000_000, "version": ODD, "switches": [switch, {**switch, "name": ODD}], "ports": ports, "workers": [worker]}


def port(name):
    at = time.monotonic_ns() // 10_000_000 % 512
    ring = {"dir": "in", "index": 0, "slots": 512, "head": at, "cur": at, "tail": (at + 100) % 512, "hwcur": at, "hwtail": (at + 100) % 512, "frames": 0,
            "bytes": 0, "drops": {}, "kicks_sent": 0, "kicks_suppressed": 0, "kicks_received": 0}
    return {"name": name, "switch": "vale0", "kind": "local", "state": "open", "vnet_hdr": 0, "lossless": False, "rings": [ring], "notes": [ODD, TURNED],
            "policies": {ODD: ODD}, "rules": [{"dir": "in", "drops": True, "expression": ODD, "frames": 1}]}


class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            request = json.loads(line)
            method, params = request["method"], request.get("params") or {}
            result = {"stats.all": stats, "port.list": lambda: [port(name) for name in NAMES], "port.show": lambda: port(params["port"])}[method]()
            self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


FLOW = {"transport": ODD, "guest": ODD, "remote": TURNED, "name": ODD, "direction": ODD, "sent": 1, "received": 2**64 - 1, "seconds": -1.5}
# The flows of each gateway: odd texts, and other types than a flow's.
GATEWAYS = {f"vale0:{ODD}": [FLOW], "vale0:null": [None], "vale0:text": ODD, "vale0:size": [{**FLOW, "sent": ODD}], "vale1:odd": [FLOW] * 300}


def gateway(port, flows):
    class Flows(socketserver.StreamRequestHandler):
        def handle(self):
            self.rfile.readline()
            self.wfile.write(json.dumps({"ok": {"flows": flows, "more": 3}}).encode() + b"\n")

    server = Server(os.path.join(os.path.dirname(sys.argv[1]), f"gateway-{port}.sock"), Flows)
    threading.Thread(target=server.serve_forever, daemon=True).start()


for whose, listed in GATEWAYS.items():
    gateway(whose, listed)
with Server(sys.argv[1], Answers) as server:
    server.serve_forever()
