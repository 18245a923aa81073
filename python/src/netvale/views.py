"""Typed views of the daemon's answers. docs/reference/control-protocol.md defines each field; unknown ones are omitted."""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass, field
from typing import Any, Hashable, Mapping, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Version:
    name: str
    version: str
    api: int


@dataclass(frozen=True)
class Switch:
    name: str
    ports: int
    addresses: int
    table_size: int
    refused_addresses: int = 0


@dataclass(frozen=True)
class Address:
    mac: str
    port: str
    age_seconds: int
    vlan: int | None = None


@dataclass(frozen=True)
class Groups:
    snooping: bool
    groups: list[dict[str, Any]]
    domains: list[dict[str, Any]]
    reports: int
    queries: int
    refused_joins: int
    malformed: int
    lost: int


@dataclass(frozen=True)
class Owner:
    uid: int
    pid: int


@dataclass(frozen=True)
class RegionInfo:
    id: int
    bytes: int
    buf_size: int
    bufs: int
    huge: bool


@dataclass(frozen=True)
class RingInfo:
    dir: str
    index: int
    slots: int
    head: int
    cur: int
    tail: int
    hwcur: int
    hwtail: int
    frames: int
    bytes: int
    kicks_sent: int
    kicks_suppressed: int
    kicks_received: int
    drops: dict[str, int] = field(default_factory=dict)
    worker: int | None = None


@dataclass(frozen=True)
class Port:
    name: str
    kind: str
    state: str
    vnet_hdr: int
    lossless: bool
    switch: str | None = None
    owner: Owner | None = None
    region: RegionInfo | None = None
    drops: dict[str, int] = field(default_factory=dict)
    rings: list[RingInfo] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    vhost: dict[str, Any] | None = None
    ptnet: dict[str, Any] | None = None
    e1000: dict[str, Any] | None = None
    policies: dict[str, Any] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Evicted:
    port: str
    owner: Owner
    reason: str
    age_seconds: int


@dataclass(frozen=True)
class PortStats:
    name: str
    kind: str
    in_frames: int
    in_bytes: int
    out_frames: int
    out_bytes: int
    drops: int
    kicks_sent: int
    kicks_suppressed: int
    kicks_received: int
    switch: str | None = None


@dataclass(frozen=True)
class WorkerStats:
    index: int
    busy_ns: int
    polled_ns: int
    slept_ns: int
    waited_ns: int = 0
    preempted_ns: int = 0
    ingresses: int = 0
    stalls: int = 0
    cpu: int | None = None


@dataclass(frozen=True)
class Stats:
    now_ns: int
    ports: list[PortStats]
    workers: list[WorkerStats]
    refused: int = 0
    stalls: int = 0


def summed(port: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a port of ``stats.all`` with the sums of its rings' counters and of its drops."""
    ways = ("in", "out")
    sums = {f"{way}_{what}": sum(ring[what] for ring in port[way]) for way in ways for what in ("frames", "bytes")}
    drops = sum(frames for way in ways for frames in port.get(f"{way}_drops", {}).values())
    return {**port, **sums, "drops": drops}


@functools.lru_cache(maxsize=None)
def _fields(kind: Hashable) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(typing.cast(Any, kind))}


def _value(hint: Any, value: Any) -> Any:
    for part in (hint, *typing.get_args(hint)):
        if dataclasses.is_dataclass(part):
            return [made(part, one) for one in value] if isinstance(value, list) else made(part, value)
    return value


def made(kind: type[T], answer: Mapping[str, Any]) -> T:
    """Creates a view of an answer."""
    known = _fields(typing.cast(Hashable, kind))
    return kind(**{name: _value(known[name], value) for name, value in answer.items() if name in known})
