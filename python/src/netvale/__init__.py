"""Ports of netvale's switches: raw Ethernet frames, without copies.

    import netvale

    with netvale.open("vale0:a") as port:
        port.send([b"\\xff" * 60] * 256)
        while port.wait():
            for frame in port.recv():
                print(len(frame))

:func:`open` returns a :class:`Port`; :class:`Control` queries the daemon; ``netvale.scapy`` has a socket for scapy.
"""

from .control import Control
from .errors import Closed, ControlError, NetvaleError
from .port import Port, open
from .ring import Ring, Slot

__all__ = ["Closed", "Control", "ControlError", "NetvaleError", "Port", "Ring", "Slot", "open"]
__version__ = "0.1.0"
