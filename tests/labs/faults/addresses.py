"""Where a laboratory listens: on a loopback address of its own, so that nobody else's ports and connections meet it.

A part that is down leaves its port free. On 127.0.0.1 an outgoing connection of any program may take it meanwhile.
"""

from __future__ import annotations

import os
from itertools import count

from firmq.shared.http.bind import port_problem

HOST = f"127.{64 + (os.getpid() >> 16)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""Linux answers to all of 127.0.0.0/8. A process id has 22 bits."""
_NUMBERS = count(20_000)
"""Below the ports that Linux gives out by chance, to whoever listens on all addresses too."""


def new_port() -> int:
    """A port of `HOST` that nobody listens on, and that is given out once."""
    return next(number for number in _NUMBERS if port_problem(HOST, number) is None)
