"""A Redis server whose disk is slow: its fsyncs wait until a test lets them go on.

The server's own system calls are stopped by the kernel (seccomp's user notification) and answered from here, so it
needs neither rights nor a compiler. Linux only.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.local.server_binary import ServerBinary

_FSYNC, _FDATASYNC, _SECCOMP = {"x86_64": (74, 75, 317), "aarch64": (82, 83, 277)}.get(platform.machine(), (0, 0, 0))
SUPPORTED = sys.platform == "linux" and _SECCOMP > 0
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_NOTIFICATION, _REPLY = struct.Struct("=QII64x"), struct.Struct("=QqiI")
_CONTINUE = 1


class SlowDisk:
    """Makes each fsync of one server take `seconds`; may be changed at any time."""

    def __init__(self, server: ServerBinary) -> None:
        self.seconds = 0.0
        self.waiting = 0
        """Fsyncs that have not returned yet."""
        self._folder = tempfile.TemporaryDirectory(prefix="slow-disk-")
        folder = Path(self._folder.name)
        self._address = folder / "socket"
        script = folder / "server"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
            f"from tests.slow_disk import become\nbecome({str(server.path)!r}, {str(self._address)!r})\n"
        )
        script.chmod(0o700)
        self.binary = ServerBinary(path=script, engine=server.engine, version=server.version)

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._address))
        self._listener.listen()
        threading.Thread(target=self._accept, name="slow disk", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = 0.0
        self._listener.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                server, _ = self._listener.accept()
                with server:
                    _, fds, _, _ = socket.recv_fds(server, 1, 1)
                threading.Thread(target=self._answer, args=(fds[0],), daemon=True).start()

    def _answer(self, fd: int) -> None:
        """Lets one fsync after the other go on, until the server is gone."""
        while True:
            notification = array.array("B", bytes(80))
            try:
                fcntl.ioctl(fd, _RECEIVE, notification)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                break
            threading.Thread(target=self._delay, args=(fd, _NOTIFICATION.unpack(notification)[0]), daemon=True).start()
        os.close(fd)

    def _delay(self, fd: int, number: int) -> None:
        self.waiting += 1
        began = time.monotonic()
        while time.monotonic() - began < self.seconds:
            time.sleep(0.005)
        self.waiting -= 1
        with contextlib.suppress(OSError):  # the server was killed
            fcntl.ioctl(fd, _ANSWER, _REPLY.pack(number, 0, 0, _CONTINUE))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def become(server: str, address: str) -> None:
    """Turns this process into the server, with whoever listens at `address` asked before each fsync."""
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # load the number of the system call
            (0x15, 1, 0, _FSYNC),
            (0x15, 0, 1, _FDATASYNC),
            (0x06, 0, 0, 0x7FC00000),  # ask the listener
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # no new rights, which the kernel wants of those without any
    wanted = _Filter(5, program)
    fd = libc.syscall(_SECCOMP, 1, 8, ctypes.byref(wanted))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.connect(address)
        socket.send_fds(listener, [b"f"], [fd])
    os.set_inheritable(fd, False)
    os.execv(server, [server, *sys.argv[1:]])
