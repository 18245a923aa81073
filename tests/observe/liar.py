#!/usr/bin/env python3
"""liar.py FOLDER [WORD…]: listens where a daemon would, and claims to be one. The WORDs are what /proc shows as its arguments."""

import json
import os
import socket
import socketserver
import sys


class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            request = json.loads(line)
            result = {"name": "netvale", "version": "0.0.0", "api": 14, "pid": os.getpid()}
            self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


attach = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
attach.bind(f"{sys.argv[1]}/attach.sock")
attach.listen()
Server(f"{sys.argv[1]}/control.sock", Answers).serve_forever()
