"""What goes wrong, in the daemon's words."""

from __future__ import annotations

import errno as numbers
import os


class NetvaleError(OSError):
    """The daemon, or its library, refused. ``errno`` is the number that netmap gives, ``strerror`` the text."""

    def __init__(self, errno: int, text: str = "") -> None:
        super().__init__(errno, text or os.strerror(errno))


class Closed(NetvaleError):
    """The port was closed by this program, was detached, or its daemon ended."""

    def __init__(self, text: str) -> None:
        super().__init__(numbers.ENXIO, text)


class ControlError(NetvaleError):
    """An error that the control protocol answered with. ``code`` is the protocol's, ``hint`` says what to do next."""

    def __init__(self, code: int, message: str, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(errno or numbers.EIO, message)
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.strerror}; {self.hint}" if self.hint else str(self.strerror)
