"""Errors, with the daemon's texts."""

from __future__ import annotations

import errno as numbers
import os


class NetvaleError(OSError):
    """An error of the daemon or its library. ``errno`` is netmap's error number, ``strerror`` the text."""

    def __init__(self, errno: int, text: str = "") -> None:
        super().__init__(errno, text or os.strerror(errno))


class Closed(NetvaleError):
    """The port was closed by this program, was detached, or its daemon ended."""

    def __init__(self, text: str) -> None:
        super().__init__(numbers.ENXIO, text)


class ControlError(NetvaleError):
    """An error answer of the control protocol. ``code`` is the protocol's, ``hint`` the suggested next step."""

    def __init__(self, code: int, message: str, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(errno or numbers.EIO, message)
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.strerror}; {self.hint}" if self.hint else str(self.strerror)
