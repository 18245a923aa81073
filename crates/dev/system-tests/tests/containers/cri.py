"""Asks a container runtime for pods (CRI, runtime.v1): cri.py SOCKET ready | run NAME LOGS | stop ID.

The few messages that this takes are written by hand: their fields are strings and messages."""

import sys

import grpc


def field(number, value):
    """A field that has a length (wire type 2)."""
    data = value.encode() if isinstance(value, str) else value
    length, left = bytearray(), len(data)
    while left > 127:
        length.append(left & 127 | 128)
        left >>= 7
    length.append(left)
    return bytes([number << 3 | 2]) + bytes(length) + data


def first(message):
    """The value of the first field, which has a length below 128."""
    return message[2:2 + message[1]].decode()


socket, what, *rest = sys.argv[1:]
channel = grpc.insecure_channel("unix://" + socket)


def call(method, request):
    method = "/runtime.v1.RuntimeService/" + method
    return channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(request, timeout=60)


if what == "ready":
    # Conditions of the runtime and its network, each with its name and, if it holds, the field 2 set.
    sys.exit(0 if b"NetworkReady\x10\x01" in call("Status", b"") else 1)
elif what == "run":
    name, logs = rest
    metadata = field(1, name) + field(2, "uid-" + name) + field(3, "default")
    print(first(call("RunPodSandbox", field(1, field(1, metadata) + field(3, logs) + field(8, b"")))))
elif what == "stop":
    call("StopPodSandbox", field(1, rest[0]))
    call("RemovePodSandbox", field(1, rest[0]))
