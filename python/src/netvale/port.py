"""A port of a switch, or an end of a pipe."""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import select
import threading
import time
import warnings
from types import TracebackType
from typing import Sequence

from . import _library
from ._region import Region, release_all
from .errors import Closed
from .ring import Bytes, Ring

_GONE = "the daemon closed the port: it was detached, or the daemon ended"
_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLNVAL
#: Default maximum of frames that one call takes.
BATCH = 512


class Port:
    """An open port, created by :func:`open` and closed by :meth:`close` or at the end of a ``with`` block.

    Only one thread at a time may use a port, but any thread may call :meth:`close` and :meth:`wait`.
    """

    def __init__(self, name: str, *, slots: int = 0, rings: int = 0) -> None:
        self._fd = -1
        self._lent: list[memoryview] = []
        #: rx rings with lent frames, and the index up to which the next call releases them.
        self._taken: list[tuple[Ring, int]] = []
        self._ready: _Ready | None = None
        self._room: _Ready | None = None
        #: Tasks that wait in an event loop.
        self._sleepers: set[_Sleeper] = set()
        self._closing = threading.Lock()
        self._fd, done = _library.register(name, slots, rings)
        self.name = name
        self.mem_id = int(done.mem_id)
        try:
            self._region = Region(self._fd, done.memsize)
            self.tx, self.rx = self._rings(done.offset)
        except BaseException:
            self.close()
            raise
        self._next_tx = self._next_rx = 0

    def _rings(self, at: int) -> tuple[list[Ring], list[Ring]]:
        """Returns the bound rings, as the ``netmap_if`` lists them."""
        head = self._region.words(at, 56, "I")
        tx, rx = int(head[6] + head[9]), int(head[7] + head[10])
        places = self._region.words(at + 56, 8 * (tx + rx), "q").tolist()
        rings = [Ring(self, at + place) if place else None for place in places]
        return [r for r in rings[:tx] if r], [r for r in rings[tx:] if r]

    # ---- frames ----

    def send(self, frames: Sequence[Bytes]) -> int:
        """Sends as many of the frames, from the first on, as there is room for. Returns their number."""
        if isinstance(frames, (bytes, bytearray, memoryview)):
            raise TypeError("expected a batch of frames: put a single frame into a list")
        done = 0
        for ring in self._tx_in_turn():
            if ring.space < len(frames) - done:
                ring.sync()
            done = ring._put(frames, done)
            if done == len(frames):
                break
        self._sync(_library.NIOCTXSYNC)
        if done == 0 and frames and _library.hung_up(self._fd):
            raise Closed(_GONE)
        return done

    def sendall(self, frames: Sequence[Bytes], timeout: float | None = None) -> None:
        """Sends all frames, waiting for room. Raises :class:`TimeoutError` after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        done = self.send(frames)
        while done < len(frames):
            left = None if end is None else end - time.monotonic()
            if (left is not None and left <= 0) or not self.wait_room(left):
                raise TimeoutError(f"{len(frames) - done} of {len(frames)} frames found no room in time")
            done += self.send(frames[done:])

    def recv(self, max: int = BATCH) -> list[memoryview]:
        """Takes at most ``max`` of the frames that have arrived; returns an empty list without any (see :meth:`wait`).

        The views refer to the ring's buffers, and are released by the next call of any ``recv``. Another program that shares
        the memory (the other end of a pipe) can still write there: use copies from :meth:`recv_bytes` for data that is
        checked before it is used.
        """
        self._give_back()
        self._sync(_library.NIOCRXSYNC)
        frames: list[memoryview] = []
        count = len(self.rx)
        for k in range(count):
            ring = self.rx[(self._next_rx + k) % count]
            if ring.space:
                self._taken.append((ring, ring._take(max - len(frames), frames)))
            if len(frames) >= max:
                self._next_rx = (self._next_rx + k) % count
                break
        self._lent = frames
        if self._ready is not None:
            self._ready.rest()
        if not frames and _library.hung_up(self._fd):
            raise Closed(_GONE)
        return list(frames)

    def recv_bytes(self, max: int = BATCH) -> list[bytes]:
        """Takes frames like :meth:`recv`, as copies that remain valid."""
        frames = [bytes(view) for view in self.recv(max)]
        self._give_back()
        return frames

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps until frames have arrived. Returns whether there are any; False after ``timeout`` seconds."""
        return self._wait(select.POLLIN, timeout)

    def wait_room(self, timeout: float | None = None) -> bool:
        """Sleeps until there is room to send. Returns whether there is; False after ``timeout`` seconds."""
        return self._wait(select.POLLOUT, timeout)

    def sync(self) -> None:
        """Syncs all rings, for programs that use :attr:`Ring.slots`."""
        self._sync(_library.NIOCTXSYNC)
        self._sync(_library.NIOCRXSYNC)

    # ---- event loops ----

    def fileno(self) -> int:
        """Returns a descriptor that is readable while frames wait, for select, asyncio's ``add_reader`` and other event loops.

        It stays readable while :meth:`recv` leaves frames: call :meth:`recv` until it returns none, or whenever the
        descriptor is readable.
        """
        self._check()
        if self._ready is None:
            self._ready = _Ready(self._fd, select.POLLIN)
            self._ready.rest()
        return self._ready.set.fileno()

    def __aiter__(self) -> Port:
        return self

    async def __anext__(self) -> list[memoryview]:
        """``async for batch in port``: batches as :meth:`recv` returns them. Ends when this program closes the port."""
        while True:
            try:
                frames = self.recv()
                if frames:
                    return frames
                await self._readable(self.fileno())
            except Closed:
                if self._fd < 0:
                    raise StopAsyncIteration from None
                raise

    async def asend(self, frames: Sequence[Bytes]) -> None:
        """Sends all frames, waiting for room in asyncio's event loop."""
        done = self.send(frames)
        while done < len(frames):
            if self._room is None:
                self._room = _Ready(self._fd, select.POLLOUT)
            if self._room.rest():
                # There is room, though perhaps not for a frame of several slots: other tasks run first.
                await asyncio.sleep(0)
            else:
                await self._readable(self._room.set.fileno())
            done += self.send(frames[done:])
        if self._room is not None:
            self._room.stir()

    # ---- the end ----

    def close(self) -> None:
        """Closes the port and releases all views of its memory. Tasks that wait for it in this thread's event loop continue."""
        with self._closing:
            fd, self._fd = self._fd, -1
        if fd < 0:
            return
        for sleeper in list(self._sleepers):
            sleeper.wake()
        release_all(self._lent)
        self._lent, self._taken = [], []
        for ready in (self._ready, self._room):
            if ready is not None:
                ready.close()
        if hasattr(self, "_region"):
            self._region.close()
        _library.load().close(fd)

    @property
    def closed(self) -> bool:
        """Whether the port is closed."""
        return self._fd < 0

    def __enter__(self) -> Port:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            warnings.warn(f"the port {self.name} was not closed", ResourceWarning, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        return f"<netvale.Port {self.name}{' closed' if self.closed else ''}>"

    # ---- inside ----

    def _check(self) -> None:
        if self._fd < 0:
            raise Closed("the port is closed")

    def _sync(self, request: int) -> None:
        self._check()
        if _library.load().ioctl(self._fd, request, None) < 0:
            raise _library.failure()

    async def _readable(self, fd: int) -> None:
        sleeper = _Sleeper(fd)
        self._sleepers.add(sleeper)
        try:
            await sleeper.ready
        finally:
            self._sleepers.discard(sleeper)
            if sleeper.ready.cancelled():
                sleeper.loop.remove_reader(fd)
        self._check()

    def _tx_in_turn(self) -> list[Ring]:
        self._check()
        self._next_tx = (self._next_tx + 1) % max(len(self.tx), 1)
        return self.tx[self._next_tx :] + self.tx[: self._next_tx]

    def _give_back(self) -> None:
        """Releases the views of the last batch; its slots are returned with the next sync."""
        self._check()
        release_all(self._lent)
        for ring, head in self._taken:
            ring._move(head)
        self._lent, self._taken = [], []

    def _wait(self, events: int, timeout: float | None) -> bool:
        self._check()
        if self._ready is not None:
            self._ready.stir()
        end = None if timeout is None else time.monotonic() + timeout
        found = 0
        while not found:
            left = math.inf if end is None else end - time.monotonic()
            # At most an hour at a time; Python handles signals in between.
            found = _library.poll(self._fd, events, int(1000 * min(max(left, 0), 3600) + 0.999))
            if left <= 0:
                break
        if self._ready is not None:
            self._ready.rest()
        if self._fd < 0:
            raise Closed("the port is closed")
        if found & _HUNG_UP and not found & events:
            raise Closed(_GONE)
        return bool(found & events)


class _Ready:
    """An epoll set that is readable while a port is ready.

    It contains the port's wake-up descriptors, its connection, and, while the port is ready already, a descriptor that is
    always readable.
    """

    def __init__(self, fd: int, events: int) -> None:
        self._port, self._events = fd, events
        self._told = False
        # A pipe without a writer is always readable.
        self._always, unused = os.pipe()
        os.close(unused)
        self.set = select.epoll()
        self.set.register(fd, 0)
        for wake in self._wakes():
            self.set.register(wake, select.EPOLLIN)

    def _wakes(self) -> list[int]:
        lib = _library.load()
        room = (ctypes.c_int * 1024)()
        count = lib.netvale_wake_fds(self._port, self._events, room, len(room))
        if count < 0:
            raise _library.failure()
        return list(room[:count])

    def rest(self) -> bool:
        """Makes the set readable when the port is ready. Returns whether the port is ready already."""
        found = _library.load().netvale_arm(self._port, self._events)
        if found < 0:
            raise _library.failure()
        if bool(found) != self._told:
            self._told = not self._told
            if self._told:
                self.set.register(self._always)
            else:
                self.set.unregister(self._always)
        return bool(found)

    def stir(self) -> None:
        """Withdraws the request for wake-ups, so that the port can be polled."""
        _library.load().netvale_disarm(self._port, self._events)

    def close(self) -> None:
        """Closes the set."""
        self.set.close()
        os.close(self._always)


class _Sleeper:
    """A task that waits for a descriptor in its event loop."""

    def __init__(self, fd: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.fd = fd
        self.loop.add_reader(fd, self.wake)

    def wake(self) -> None:
        """Ends the wait."""
        if not self.ready.done():
            self.loop.remove_reader(self.fd)
            self.ready.set_result(None)


def open(name: str, *, slots: int = 0, rings: int = 0) -> Port:
    """Opens a port by its name: ``vale0:a``, ``netmap:p{1``, ``vale0:a/r``, ….

    ``slots`` per ring and ``rings`` in each direction apply if the open creates the port; 0 selects netmap's default.
    ``$NETVALE_RUN_DIR`` names the daemon's run directory.
    """
    return Port(name, slots=slots, rings=rings)
