"""libnetmap through ctypes. Its versions of C library functions (open, ioctl, poll, …) are called on the loaded library."""

from __future__ import annotations

import ctypes
import errno as numbers
import functools
import os
import select

from .errors import NetvaleError

NIOCTXSYNC = 0x6994
NIOCRXSYNC = 0x6995
# _IOWR('i', 151, struct nmreq_header)
NIOCCTRL = 3 << 30 | 88 << 16 | 0x6997

#: Path of the library after `make build`, for a package used in its checkout.
_BUILT = os.path.join(os.path.dirname(__file__), "../../../target/release/libnetmap.so")
#: Names and paths of the library; the paths are for an installation that the dynamic loader does not search.
_PLACES = ("libnetmap.so.0", "/usr/local/lib/libnetmap.so.0", "/usr/lib/netvale/libnetmap.so.0", _BUILT)


class Header(ctypes.Structure):
    """``struct nmreq_header``"""

    _fields_ = [
        ("version", ctypes.c_uint16),
        ("reqtype", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
        ("name", ctypes.c_char * 64),
        ("options", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
    ]


class Register(ctypes.Structure):
    """``struct nmreq_register``"""

    _fields_ = [
        ("offset", ctypes.c_uint64),
        ("memsize", ctypes.c_uint64),
        ("tx_slots", ctypes.c_uint32),
        ("rx_slots", ctypes.c_uint32),
        ("tx_rings", ctypes.c_uint16),
        ("rx_rings", ctypes.c_uint16),
        ("host_tx_rings", ctypes.c_uint16),
        ("host_rx_rings", ctypes.c_uint16),
        ("mem_id", ctypes.c_uint16),
        ("ringid", ctypes.c_uint16),
        ("mode", ctypes.c_uint32),
        ("extra_bufs", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
    ]


class Prepared(ctypes.Structure):
    """The beginning of ``struct nmport_d``"""

    _fields_ = [("header", Header), ("register", Register)]


class PollFd(ctypes.Structure):
    """``struct pollfd``"""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def _find() -> ctypes.CDLL:
    named = os.environ.get("NETVALE_LIBNETMAP")
    reasons = []
    for place in [named] if named else _PLACES:
        try:
            return ctypes.CDLL(place, use_errno=True)
        except OSError as error:
            reasons.append(str(error))
    text = f"netvale's libnetmap is not installed: install libnetmap0, or set NETVALE_LIBNETMAP=/…/libnetmap.so ({reasons[0]})"
    raise NetvaleError(numbers.ENOENT, text)


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """Loads the library and declares the types of the functions used here."""
    lib = _find()
    try:
        lib.netvale_error.restype = ctypes.c_char_p
    except AttributeError:
        raise NetvaleError(numbers.ENOSYS, f"{lib._name} is not netvale's libnetmap, or an older one") from None
    lib.nmport_prepare.restype = ctypes.POINTER(Prepared)
    lib.nmport_prepare.argtypes = [ctypes.c_char_p]
    lib.nmport_undo_prepare.argtypes = [ctypes.POINTER(Prepared)]
    lib.open.argtypes = [ctypes.c_char_p, ctypes.c_int]
    lib.close.argtypes = [ctypes.c_int]
    lib.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
    lib.poll.argtypes = [ctypes.POINTER(PollFd), ctypes.c_ulong, ctypes.c_int]
    lib.mmap.restype = ctypes.c_void_p
    lib.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    lib.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    # Errors become exceptions, so the library does not print them.
    lib.nmctx_get.restype = ctypes.POINTER(ctypes.c_int)
    lib.nmctx_get().contents.value = 0
    return lib


def failure() -> NetvaleError:
    """Returns the error of the library's last call in this thread."""
    number = ctypes.get_errno() or numbers.EIO
    text = (load().netvale_error() or b"").decode(errors="replace")
    return NetvaleError(number, text)


def register(name: str, slots: int, rings: int) -> tuple[int, Register]:
    """Opens a port. Returns its descriptor, and the registration as the daemon filled it in."""
    lib = load()
    lib.netvale_error_clear()
    prepared = lib.nmport_prepare(os.fsencode(name))
    if not prepared:
        raise failure()
    fd = -1
    try:
        body = prepared.contents.register
        body.tx_slots = body.rx_slots = slots
        body.tx_rings = body.rx_rings = rings
        fd = lib.open(b"/dev/netmap", os.O_RDWR | os.O_CLOEXEC)
        if fd < 0 or lib.ioctl(fd, NIOCCTRL, prepared) < 0:
            raise failure()
        kept = Register.from_buffer_copy(body)
        fd, done = -1, fd
        return done, kept
    finally:
        if fd >= 0:
            lib.close(fd)
        lib.nmport_undo_prepare(prepared)


def poll(fd: int, events: int, milliseconds: int) -> int:
    """Calls poll(2) on a port: syncs, and sleeps until the port is ready. Returns 0 after the timeout or a signal."""
    one = PollFd(fd, events, 0)
    if load().poll(ctypes.byref(one), 1, milliseconds) < 0:
        if ctypes.get_errno() == numbers.EINTR:
            return 0
        raise failure()
    return int(one.revents)


def hung_up(fd: int) -> bool:
    """Returns whether the daemon has closed the connection."""
    look = select.poll()
    look.register(fd, 0)
    return bool(look.poll(0))
