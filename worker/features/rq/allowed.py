"""The allow-list for loading RQ jobs: functions and classes by name, and pickles that name nothing else.

A job names its function, its callbacks and, in a pickle, any class. A name is imported only if it matches RQ_ALLOW, and
its object must be defined under a matching name too: `shop.tasks.os.system` matches `shop.*` and is refused.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pickle import _Unpickler as PythonUnpickler
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

_MOST_INFLATED = 64 << 20
_PICKLE = b"\x80"
_CALLBACKS = (b"success_callback_name", b"failure_callback_name", b"stopped_callback_name")
_HARMLESS = {
    "builtins": {"bytearray", "complex", "frozenset", "object", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "uuid": {"SafeUUID", "UUID"},
}
"""Classes of the standard library that arguments often have."""


class JobRefused(Exception):
    """The job is not run: its serialization or one of its names is not allowed, or it cannot be read."""


class Checked(NamedTuple):
    """A job whose names are allowed."""

    serializer: Any
    """RQ's serializer for the job, which loads allowed names only."""
    call: tuple[str, Any, Sequence[Any], dict[str, Any]]
    """The function's or method's name, the instance of the method or None, the arguments."""


class Allowed:
    """The names that match RQ_ALLOW, and whether pickles are read at all."""

    def __init__(self, patterns: Sequence[str], *, pickles: bool) -> None:
        self.patterns = patterns
        self.pickles = pickles
        self._found: dict[str, Any] = {}

    def check(self, record: Mapping[bytes, bytes]) -> Checked:
        """Returns the call of a job, and the serializer for the rest of it. Raises JobRefused."""
        data, meta = inflated(record.get(b"data", b"")), inflated(record.get(b"meta", b""))
        serializer = self._serializer(pickled=data.startswith(_PICKLE) or meta.startswith(_PICKLE))
        try:
            name, instance, arguments, keywords = serializer.loads(data)
        except JobRefused:
            raise
        except Exception as error:
            raise JobRefused(f"its data cannot be read: {type(error).__name__}: {error}") from None
        if not (isinstance(name, str) and isinstance(arguments, list | tuple) and isinstance(keywords, dict)):
            raise JobRefused("its data is not a call")
        if instance is None:
            self.find(name)
        else:
            self._check_method(instance, name)
        for field in _CALLBACKS:
            if callback := record.get(field):
                self.find(callback.decode(errors="replace"))
        return Checked(serializer, (name, instance, arguments, keywords))

    def find(self, name: str) -> Any:
        """Returns the function or class of this name, and imports its module. Raises JobRefused."""
        if name in self._found:
            return self._found[name]
        self._must_match(name)
        found = _imported(name)
        home = f"{getattr(found, '__module__', None)}.{getattr(found, '__qualname__', None)}"
        if home != name:
            self._must_match(home, f"{name}, which is {home},")
        self._found[name] = found
        return found

    def _must_match(self, name: str, what: str = "") -> None:
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            raise JobRefused(f"{what or name} does not match RQ_ALLOW ({', '.join(self.patterns)})")

    def _check_method(self, instance: object, name: str) -> None:
        owner = instance if isinstance(instance, type) else type(instance)
        if "." in name or (name.startswith("_") and name != "__call__"):
            raise JobRefused(f"{name} is not a public method")
        self._must_match(f"{owner.__module__}.{owner.__qualname__}.{name}")
        if not instance:
            raise JobRefused("its instance is empty, and RQ would call a builtin function in place of its method")

    def serializer_of(self, stored: bytes | None) -> Any:
        """Returns RQ's serializer for a field that was stored. Raises JobRefused."""
        return self._serializer(pickled=(stored or b"").startswith(_PICKLE))

    def _serializer(self, *, pickled: bool) -> Any:
        if not pickled:
            return _Json
        if not self.pickles:
            raise JobRefused("it is pickled, and RQ_PICKLE is off: enqueue with RQ's JSONSerializer, or turn it on")
        return _Pickles(self)


class _Json:
    """RQ's JSON serializer."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        return json.dumps(value).encode()

    @staticmethod
    def loads(data: bytes) -> Any:
        return json.loads(data)


class _Pickles:
    """RQ's default serializer, which loads allowed names only."""

    def __init__(self, allowed: Allowed) -> None:
        self.allowed = allowed
        self.__qualname__ = "_Pickles"  # RQ takes a serializer for a class, and notes its name

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        try:
            return _NamesNothing(io.BytesIO(data)).load()
        except pickle.UnpicklingError:
            return _Unpickler(data, self.allowed).load()


class _NamesNothing(pickle.Unpickler):
    """Loads a pickle of nothing but values, twenty times as fast: without a class or function there is nothing to call,
    and nothing that has attributes."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError


class _Unpickler(PythonUnpickler):
    """Resolves classes and functions by the allow-list, before anything of their modules runs.

    It is the one in Python, because the one in C does not let the attributes that a pickle sets be checked.
    """

    def __init__(self, data: bytes, allowed: Allowed) -> None:
        super().__init__(io.BytesIO(data))
        self.allowed = allowed
        self.named: list[object] = []

    def find_class(self, module: str, name: str) -> Any:
        if name in _HARMLESS.get(module, ()):
            return getattr(importlib.import_module(module), name)
        found = self.allowed.find(f"{module}.{name}")
        self.named.append(found)
        return found

    def load_build(self) -> None:
        """Sets the attributes of an object that the pickle made. Raises JobRefused for any other."""
        changed = self.stack[-2]  # type: ignore[attr-defined]
        shared = isinstance(changed, type | ModuleType) or inspect.isroutine(changed)
        if shared or any(changed is each for each in self.named):
            raise JobRefused("its pickle changes a function or class")
        super().load_build()  # type: ignore[misc]

    dispatch: ClassVar[dict[int, Any]] = {**PythonUnpickler.dispatch, pickle.BUILD[0]: load_build}


def _imported(name: str) -> Any:
    parts = name.split(".")
    for at in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:at]))
        except ModuleNotFoundError as error:
            if error.name and ".".join(parts[:at]).startswith(error.name):
                continue
            raise
        try:
            for part in parts[at:]:
                found = getattr(found, part)
        except AttributeError:
            break
        return found
    raise JobRefused(f"{name} does not exist in this worker's environment")


def inflated(data: bytes) -> bytes:
    """Returns stored data decompressed; RQ compresses a call, and reads anything but a whole stream as it is."""
    if not data:
        return data
    try:
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(data, _MOST_INFLATED)
    except zlib.error:
        return data
    if unpacker.unconsumed_tail:
        raise JobRefused(f"its data is larger than {_MOST_INFLATED >> 20} MiB")
    return found if unpacker.eof else data
