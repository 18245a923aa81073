"""The mapping of a port's memory, which lasts as long as views of it."""

from __future__ import annotations

import ctypes
import mmap
import weakref

from . import _library

_FIXED, _NORESERVE = 0x10, 0x4000
_FAILED = ctypes.c_void_p(-1).value


class Region:
    """The mapping of a port's region.

    A view that a program derives from a view of the region (a slice, a NumPy array) can outlive the port. The addresses
    therefore stay reserved until the last such view is gone. When the port is closed, the memory behind them is replaced
    by private zeros: the views then read zeros, and writes reach no other program.
    """

    def __init__(self, fd: int, size: int) -> None:
        lib = _library.load()
        at = lib.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if at == _FAILED:
            raise _library.failure()
        self.size = size
        self._at = at
        memory = (ctypes.c_ubyte * size).from_address(at)
        # Every view holds `memory`.
        weakref.finalize(memory, lib.munmap, at, size).atexit = False
        self.view = memoryview(memory).cast("B")
        self._words: list[memoryview] = []
        self._buffers: dict[int, memoryview] = {}

    def words(self, at: int, size: int, form: str) -> memoryview:
        """Returns a part of the region as words. The view is released with the region."""
        view = self.view[at : at + size].cast(form)
        self._words.append(view)
        return view

    def buffer(self, at: int, size: int) -> memoryview:
        """Returns the buffer at an offset. Views are cached, so zero-copy programs create none while they run."""
        view = self._buffers.get(at)
        if view is None or not _alive(view):
            view = self._buffers[at] = self.view[at : at + size]
        return view

    def close(self) -> None:
        """Releases all views, and replaces the memory behind views derived from them."""
        if self._at == 0:
            return
        for view in [*self._buffers.values(), *self._words, self.view]:
            _release(view)
        self._buffers.clear()
        self._words.clear()
        lib = _library.load()
        how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED | _NORESERVE
        if lib.mmap(self._at, self.size, mmap.PROT_READ | mmap.PROT_WRITE, how, -1, 0) == _FAILED:
            raise _library.failure()
        self._at = 0


def _alive(view: memoryview) -> bool:
    try:
        return view.nbytes > 0
    except ValueError:
        return False


def _release(view: memoryview) -> None:
    try:
        view.release()
    except BufferError:
        # An object such as a NumPy array exports the view and cannot be notified; it reads zeros from now on.
        pass


def release_all(views: list[memoryview]) -> None:
    """Releases views that must no longer be used."""
    for view in views:
        _release(view)
