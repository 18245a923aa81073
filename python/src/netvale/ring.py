"""Rings and slots in a port's memory.

Words that another program may write (the two ends of a pipe share their rings) are read once into a copy, which is
checked and used.
"""

from __future__ import annotations

import errno as numbers
from typing import TYPE_CHECKING, Iterator, Sequence, Union

from . import _library
from .errors import NetvaleError

if TYPE_CHECKING:
    from ._region import Region
    from .port import Port

Bytes = Union[bytes, bytearray, memoryview]

#: ``NS_BUF_CHANGED``: the program has put another buffer into the slot.
BUF_CHANGED = 0x0001
#: ``NS_MOREFRAG``: the frame continues in the next slot.
MOREFRAG = 0x0020

_INDEX = 0xFFFFFFFF
_HEAD, _CUR, _TAIL = 5, 6, 7
_SLOTS_AT = 256


class Slot:
    """A slot of a ring: a buffer, and the length of the frame in it."""

    __slots__ = ("_ring", "_at")

    def __init__(self, ring: Ring, index: int) -> None:
        self._ring = ring
        self._at = 2 * index

    def _word(self) -> int:
        return int(self._ring._slots[self._at])

    @property
    def len(self) -> int:
        """Number of bytes of the frame in this slot, at most the buffer's size."""
        return min(self._word() >> 32 & 0xFFFF, self._ring.buf_size)

    @len.setter
    def len(self, value: int) -> None:
        if not 0 <= value <= min(self._ring.buf_size, 0xFFFF):
            raise ValueError(f"expected a length of at most {self._ring.buf_size} bytes")
        self._ring._slots[self._at] = self._word() & ~(0xFFFF << 32) | value << 32

    @property
    def flags(self) -> int:
        """The slot's flags, ``NS_*``."""
        return self._word() >> 48

    @flags.setter
    def flags(self, value: int) -> None:
        self._ring._slots[self._at] = self._word() & ~(0xFFFF << 48) | (value & 0xFFFF) << 48

    @property
    def buf(self) -> memoryview:
        """The whole buffer, writable. The view is released when the port is closed."""
        ring = self._ring
        at = ring._place(self._word(), self._offset())
        return ring._region.buffer(at, ring.buf_size - self._offset())

    def _offset(self) -> int:
        mask = self._ring._offset_mask
        return min(int(self._ring._slots[self._at + 1]) & mask, self._ring.buf_size) if mask else 0

    def swap(self, other: Slot) -> None:
        """Swaps the buffers and lengths of two slots of one region, which moves a frame without a copy."""
        if self._ring._region_id() != other._ring._region_id():
            raise ValueError("the two slots are in different regions: copy the frame")
        mine, theirs = self._word(), other._word()
        changed = BUF_CHANGED << 48
        self._ring._slots[self._at] = theirs & ~(0xFFFF << 48) | changed
        other._ring._slots[other._at] = mine & ~(0xFFFF << 48) | changed


class Slots(Sequence[Slot]):
    """The slots of a ring, by index."""

    def __init__(self, ring: Ring) -> None:
        self._all = [Slot(ring, i) for i in range(ring.num_slots)]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._all[index]


class Ring:
    """A ring of a port. The slots from ``head`` up to (not including) ``tail`` belong to the program."""

    num_slots: int
    buf_size: int
    _region: Region
    _slots: memoryview
    _offset_mask: int

    def __init__(self, port: Port, at: int) -> None:
        region = port._region
        self._port = port
        self._region = region
        self._words = region.words(at, 32, "I")
        far = region.words(at, 64, "Q")
        self.num_slots = int(self._words[2])
        self.buf_size = int(self._words[3])
        #: Number of the ring among those of its direction.
        self.index = int(self._words[4]) & 0xFFFF
        self.is_tx = int(self._words[4]) >> 16 == 0
        self._offset_mask = int(far[7])
        self._base = at + int(far[0])
        self._end = region.size - self.buf_size
        if not (0 < self.num_slots <= 1 << 20 and self.buf_size > 0 and 0 <= self._base <= self._end):
            raise NetvaleError(numbers.EPROTO, "the daemon's answer cannot be used: a ring outside its region")
        self._slots = region.words(at + _SLOTS_AT, 16 * self.num_slots, "Q")
        self._views: Slots | None = None
        #: Number of frames skipped because of an invalid length or buffer.
        self.bad = 0

    @property
    def slots(self) -> Slots:
        """All slots, for programs that read and write frames in their buffers."""
        if self._views is None:
            self._views = Slots(self)
        return self._views

    @property
    def head(self) -> int:
        """Index of the first slot that belongs to the program."""
        return int(self._words[_HEAD]) % self.num_slots

    @property
    def tail(self) -> int:
        """Index of the first slot that does not belong to the program, as the last sync left it."""
        return int(self._words[_TAIL]) % self.num_slots

    @property
    def space(self) -> int:
        """Number of slots that belong to the program: received frames, or room to send."""
        return (self.tail - self.head) % self.num_slots

    def __iter__(self) -> Iterator[Slot]:
        """Iterates over the slots that belong to the program."""
        head, slots = self.head, self.slots
        return (slots[(head + k) % self.num_slots] for k in range(self.space))

    def advance(self, count: int) -> None:
        """Marks the first ``count`` slots as finished: filled, or read. The next sync publishes this."""
        if not 0 <= count <= self.space:
            raise ValueError(f"expected 0 to {self.space} slots")
        self._move((self.head + count) % self.num_slots)

    def sync(self) -> None:
        """Publishes the slots that :meth:`advance` marked, and fetches new ones."""
        self._port._sync(_library.NIOCTXSYNC if self.is_tx else _library.NIOCRXSYNC)

    def _move(self, head: int) -> None:
        self._words[_CUR] = head
        self._words[_HEAD] = head

    def _region_id(self) -> int:
        return self._port.mem_id

    def _place(self, word: int, offset: int = 0) -> int:
        """Returns the offset of a slot's buffer in the region; raises an error for an invalid buffer."""
        at = self._base + (word & _INDEX) * self.buf_size
        if at > self._end:
            raise NetvaleError(numbers.EPROTO, "a slot names a buffer outside the region")
        return at + offset

    def _take(self, limit: int, into: list[memoryview]) -> int:
        """Appends up to ``limit`` frames. Returns the index after the last one's slots, which still belong to the program."""
        at, left = self.head, self.space
        while left and limit > 0:
            taken = frames = self._take_plain(at, min(left, limit, self.num_slots - at), into)
            if taken == 0:
                taken, frames = self._take_odd(at, left, into), 1
            if taken == 0:
                break
            at, left, limit = (at + taken) % self.num_slots, left - taken, limit - frames
        self._words[_CUR] = at
        return at

    def _take_plain(self, at: int, run: int, into: list[memoryview]) -> int:
        """Takes frames of one slot each from ``run`` slots. Returns the number of frames up to the first of another kind."""
        if self._offset_mask:
            return 0
        append, memory, base, end, size = into.append, self._region.view, self._base, self._end, self.buf_size
        taken = 0
        # A copy of the slots, whose even words contain buffer index and length.
        for word in self._slots[2 * at : 2 * (at + run)].tolist()[::2]:
            length = word >> 32 & 0xFFFF
            start = base + (word & _INDEX) * size
            if word >> 48 & MOREFRAG or length > size or start > end:
                break
            append(memory[start : start + length])
            taken += 1
        return taken

    def _take_odd(self, at: int, left: int, into: list[memoryview]) -> int:
        """Takes a frame of several slots or at an offset, or skips an invalid one.

        Returns its number of slots; 0 while the frame is incomplete.
        """
        parts, good = [], True
        for count in range(1, left + 1):
            index = 2 * ((at + count - 1) % self.num_slots)
            word, offset = self._slots[index : index + 2].tolist()
            offset &= self._offset_mask
            length, start = word >> 32 & 0xFFFF, self._base + (word & _INDEX) * self.buf_size
            good = good and offset + length <= self.buf_size and start <= self._end
            if good:
                parts.append(self._region.view[start + offset : start + offset + length])
            if not word >> 48 & MOREFRAG:
                if good:
                    into.append(parts[0] if count == 1 else memoryview(b"".join(parts)))
                else:
                    self.bad += 1
                return count
        return 0

    def _put(self, frames: Sequence[Bytes], first: int) -> int:
        """Copies frames from ``frames[first:]`` into slots. Returns the index of the first frame without room.

        If an item is not a frame, raises an error and sends none.
        """
        if self._offset_mask:
            raise NetvaleError(numbers.EOPNOTSUPP, "this port's frames begin at offsets in their buffers: write them through `ring.slots`")
        at, left = self.head, self.space
        memory, slots, base, end, size = self._region.view, self._slots, self._base, self._end, min(self.buf_size, 0xFFFF)
        # A copy of the slots that belong to the program, around the end of the ring.
        words = slots[2 * at : 2 * (at + left)].tolist()[::2]
        words += slots[: 2 * (left - len(words))].tolist()[::2]
        used, wrap = 0, self.num_slots - at
        for frame in frames[first : first + left]:
            length = len(frame)
            start = base + (words[used] & _INDEX) * self.buf_size if used < left else end + 1
            try:
                if not 0 < length <= size or start > end:
                    raise ValueError
                memory[start : start + length] = frame
                slots[2 * (at + used if used < wrap else used - wrap)] = words[used] & _INDEX | length << 32
                more = 1
            except ValueError:
                # A frame of several slots, no slot left, or items other than bytes.
                more = self._put_long(frame, words, at, used)
                if more == 0:
                    break
            used, first = used + more, first + 1
        self._move((at + used) % self.num_slots)
        return first

    def _put_long(self, frame: Bytes, words: Sequence[int], at: int, used: int) -> int:
        """Copies a frame of any length and type. Returns the number of slots that it took; 0 if there is no room."""
        data = memoryview(frame).cast("B")
        if data.nbytes == 0:
            raise ValueError("a frame without bytes")
        size = min(self.buf_size, 0xFFFF)
        count = -(-data.nbytes // size)
        if count >= self.num_slots:
            raise ValueError(f"a frame of {data.nbytes} bytes is longer than the ring")
        if count > len(words) - used:
            return 0
        for k in range(count):
            part = data[k * size : (k + 1) * size]
            start = self._place(words[used + k])
            self._region.view[start : start + part.nbytes] = part
            flags = MOREFRAG if k + 1 < count else 0
            self._slots[2 * ((at + used + k) % self.num_slots)] = words[used + k] & _INDEX | part.nbytes << 32 | flags << 48
        return count
