#!/usr/bin/python3
"""stream.py ADDRESS FOLDER: sends numbered blocks to an address (TCP port 5000) until FOLDER/stop exists. Keeps their number in FOLDER/count, and
prints the MD5 sum of all of them."""

import hashlib
import os
import pathlib
import socket
import sys
import time

PAUSE = 0.05
BLOCK = os.urandom(16384)

folder = pathlib.Path(sys.argv[2])
connection = socket.create_connection((sys.argv[1], 5000), timeout=60)
total, count = hashlib.md5(), 0
while not (folder / "stop").exists():
    block = BLOCK + b"%d" % count
    connection.sendall(block)
    total.update(block)
    count += 1
    (folder / "count.new").write_text(str(count))
    (folder / "count.new").replace(folder / "count")
    time.sleep(PAUSE)
connection.shutdown(socket.SHUT_WR)
print(total.hexdigest())
