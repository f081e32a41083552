"""Of an RQ job only allowed names are imported, and only allowed pickles are loaded."""

from __future__ import annotations

import json
import os
import pickle
import sys
import zlib
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from firmq.worker.features.rq.allowed import Allowed, JobRefused, _Unpickler
from tests.support import rq_functions as shop

SHOP = "tests.support.rq_functions"


def pickled(name: object, *arguments: Any, instance: object = None, **fields: bytes) -> dict[bytes, bytes]:
    data = pickle.dumps((name, instance, arguments, {}), protocol=pickle.HIGHEST_PROTOCOL)
    return {b"data": zlib.compress(data), **{field.encode(): value for field, value in fields.items()}}


def in_json(name: object, *arguments: Any) -> dict[bytes, bytes]:
    return {b"data": zlib.compress(json.dumps([name, None, arguments, {}]).encode())}


def allowed(*patterns: str, pickles: bool = True) -> Allowed:
    return Allowed(patterns or (f"{SHOP}.*",), pickles=pickles)


class Malicious:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("pickles", [True, False])
@pytest.mark.parametrize("place", ["arguments", "meta", "instance"])
def test_a_malicious_pickle_is_never_loaded(tmp_path: Path, *, pickles: bool, place: str) -> None:
    file = tmp_path / "loaded"
    record = {
        "arguments": lambda: pickled(f"{SHOP}.add", Malicious(file)),
        "instance": lambda: pickled("add", instance=Malicious(file)),
        "meta": lambda: pickled(f"{SHOP}.add", 1, 2, meta=pickle.dumps(Malicious(file))),
    }[place]()
    try:
        serializer = allowed(pickles=pickles).check(record).serializer
    except JobRefused:
        assert not file.exists()
        return
    assert place == "meta"  # RQ loads it next, with this serializer
    with pytest.raises(JobRefused):
        serializer.loads(record[b"meta"])
    assert not file.exists()


def test_a_pickle_is_refused_where_pickles_are_off() -> None:
    with pytest.raises(JobRefused, match="RQ_PICKLE is off"):
        allowed(pickles=False).check(pickled(f"{SHOP}.add", 1, 2))


def test_a_pickled_meta_of_a_json_job_is_refused_too_where_pickles_are_off() -> None:
    record = {**in_json(f"{SHOP}.add", 1, 2), b"meta": pickle.dumps({})}
    with pytest.raises(JobRefused, match="RQ_PICKLE is off"):
        allowed(pickles=False).check(record)


@pytest.mark.parametrize("record", [pickled("antigravity.geohash"), in_json("antigravity.geohash")])
def test_a_function_outside_the_list_is_refused_without_an_import(record: dict[bytes, bytes]) -> None:
    sys.modules.pop("antigravity", None)
    with pytest.raises(JobRefused, match=r"antigravity\.geohash does not match RQ_ALLOW"):
        allowed().check(record)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", [f"{SHOP}.os.system", f"{SHOP}.os.kill", f"{SHOP}.signal", f"{SHOP}.Any"])
def test_what_an_allowed_module_imported_is_not_allowed(name: str) -> None:
    for record in (pickled(name, 1), in_json(name, 1)):
        with pytest.raises(JobRefused):
            allowed().check(record)


def test_a_dotted_name_in_a_pickle_is_not_a_way_around_the_list() -> None:
    data = b"\x80\x04\x8c\x1a" + SHOP.encode() + b"\x8c\x09os.system\x93."
    assert len(SHOP) == 0x1A
    serializer = allowed().check(pickled(f"{SHOP}.add", 1, 2)).serializer
    with pytest.raises(JobRefused, match=r"which is posix\.system"):
        serializer.loads(data)


@pytest.mark.parametrize("field", ["success_callback_name", "failure_callback_name", "stopped_callback_name"])
def test_callbacks_must_match_too(field: str) -> None:
    with pytest.raises(JobRefused, match=r"os\.abort"):
        allowed().check(pickled(f"{SHOP}.add", 1, 2, **{field: b"os.abort"}))


@pytest.mark.parametrize("name", ["__class__", "__init__", "total.__func__"])
def test_methods_are_public_ones_of_allowed_classes(name: str) -> None:
    with pytest.raises(JobRefused):
        allowed().check(pickled(name, instance=shop.Order(1)))
    with pytest.raises(JobRefused):
        allowed().check(pickled("isoformat", instance=date(2026, 1, 1)))
    allowed().check(pickled("total", 2, instance=shop.Order(1)))


@pytest.mark.parametrize(
    "value",
    [
        date(2026, 1, 2),
        datetime(2026, 1, 2, tzinfo=UTC),
        Decimal("1.5"),
        UUID(int=7),
        {1, 2},
        frozenset("a"),
        Counter("ab"),
        b"bytes",
        1 + 2j,
        shop.Order(3),
        shop.Cart(apples=2),
    ],
)
def test_usual_values_are_read(value: object) -> None:
    record = pickled(f"{SHOP}.add", value)
    _, _, (read,), _ = allowed().check(record).call
    assert type(read) is type(value)


@pytest.mark.parametrize("data", [b"", b"[]", b"\x80", b"\x80\x05N.", zlib.compress(b'["a"]'), zlib.compress(b"7")])
def test_what_is_not_a_call_is_refused(data: bytes) -> None:
    with pytest.raises(JobRefused, match="its data"):
        allowed().check({b"data": data})


def test_a_bomb_is_refused() -> None:
    with pytest.raises(JobRefused, match="64 MiB"):
        allowed().check({b"data": zlib.compress(b"\x80" + bytes(70 << 20))})


def test_a_function_that_does_not_exist_is_named() -> None:
    with pytest.raises(JobRefused, match="does not exist"):
        allowed().check(in_json(f"{SHOP}.gone"))


def test_a_method_of_an_empty_instance_is_refused() -> None:
    with pytest.raises(JobRefused, match="its instance is empty"):
        allowed().check(pickled("eval", "1 + 1", instance=shop.Cart()))
    assert allowed().check(pickled("count", instance=shop.Cart(apples=2))).call[0] == "count"


class Changing:
    """A pickle that sets an attribute of what it names."""

    def __init__(self, name: str, attribute: str) -> None:
        self.name = name
        self.attribute = attribute

    def pickle(self) -> bytes:
        named = f"c{SHOP}\n{self.name}\n".encode()
        state = pickle.dumps((None, {self.attribute: (8, 9)}), protocol=2)[2:-1]
        call = pickle.dumps((f"{SHOP}.add", None, (), {}), protocol=2)[2:-1]
        return b"\x80\x02" + named + state + b"b0" + call + b"."


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("add", "__defaults__"), ("Order", "total"), ("Order.total", "__wrapped__"), ("CART", "sum")],
)
def test_a_pickle_that_changes_what_it_names_is_refused(name: str, attribute: str) -> None:
    with pytest.raises(JobRefused, match="its pickle changes a function or class"):
        allowed().check({b"data": zlib.compress(Changing(name, attribute).pickle())})
    assert shop.add.__defaults__ is None
    assert shop.Order(2).total(3) == 6


def test_a_call_that_rq_would_not_inflate_is_not_inflated() -> None:
    with pytest.raises(JobRefused, match="its data cannot be read"):
        allowed().check({b"data": in_json(f"{SHOP}.add", 1, 2)[b"data"][:-4]})


def test_a_pickle_of_values_is_loaded_by_the_fast_unpickler(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: object) -> None:
        raise AssertionError("the slow one")

    monkeypatch.setattr(_Unpickler, "load", load)
    values = (1, 2.5, "a", b"b", None, [True], {"c": {1, 2}}, frozenset((3,)))
    assert allowed().check(pickled(f"{SHOP}.add", *values)).call[2] == values
    with pytest.raises(JobRefused, match="the slow one"):
        allowed().check(pickled(f"{SHOP}.add", date(2026, 11, 23)))


@pytest.mark.parametrize(
    "opcodes", [b"\x80\x04)b.", b"\x80\x04]}X\x01\x00\x00\x00aK\x01sb.", b"\x80\x04)R.", b"\x80\x04\x82\x01."]
)
def test_a_pickle_without_names_that_calls_or_changes_something_is_refused(opcodes: bytes) -> None:
    with pytest.raises(JobRefused, match="cannot be read"):
        allowed().check({b"data": zlib.compress(opcodes)})
