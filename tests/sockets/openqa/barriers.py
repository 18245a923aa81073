#!/usr/bin/env python3
"""barriers.py FILE: openQA's locking API, as far as parallel jobs' barriers need it. Writes its port to FILE."""

import http.server
import os
import sys
import urllib.parse


class Barriers(http.server.BaseHTTPRequestHandler):
    # name: how many jobs it waits for, and the tokens of those that have come
    known = {}

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        name = url.path.removeprefix("/api/v1/barrier").strip("/")
        if not url.path.startswith("/api/v1/barrier"):
            return self.answer(404)
        if not name:
            self.known[query["name"]] = (int(query["tasks"]), set())
            return self.answer(200)
        if name not in self.known:
            return self.answer(409)
        tasks, tokens = self.known[name]
        tokens.add(self.headers["X-API-JobToken"])
        return self.answer(200 if len(tokens) >= tasks else 409)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Barriers)
with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
