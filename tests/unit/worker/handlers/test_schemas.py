"""What a gateway accepts under the published schema is what the handler accepts, type by type."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import pytest
from pydantic import (
    UUID4,
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    Field,
    FileUrl,
    FutureDate,
    HttpUrl,
    IPvAnyAddress,
    Json,
    NaiveDatetime,
    PastDate,
    PlainSerializer,
    PostgresDsn,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from firmq.shared.domain.json_schema import compile_schema
from firmq.worker.handlers.registry import Handler, Registry, task

TEXTS = [
    *("", " ", "a", "aa", "7", "-1", "tomorrow", "NaN", "1e5", "\u0663", "a\u0000b", "{}", "[1]", "(", "[a-z]", "true"),
    *("2026-02-29", "2028-02-29", "31.12.2026", "0000-01-01", "9999-12-31", "2026-1-1", "20260101", "1700000000"),
    *("2026-12-31T23:59:59Z", "2026-12-31T23:59:59", "2026-12-31T00:00:00", "2026-12-31 23:59", "2026-12-31T23:59:60Z"),
    *("2026-12-31T24:00:00Z", "2026-13-01T00:00:00Z", "2026-12-31T23:59:59+14:00", "2026-12-31t23:59:59z"),
    *("25:00", "23:59", "23:59:59.5Z", "23:59:60", "PT1H", "P1DT2H", "P1Y", "-P1D", "P", "soon", "3 days", "01:02:03"),
    *(
        "0b4b1a3e-0000-4000-8000-000000000000",
        "0B4B1A3E000040008000000000000000",
        "{0b4b1a3e-0000-4000-8000-000000000000}",
    ),
    *("0b4b1a3e-0000-1000-8000-000000000000", "order-7", "10.1.1.1", "300.1.1.1", "::1", "10.0.0.0/8", "10.0.0.1/8"),
    *(
        "https://example.com/\u00e4?\u00f6=1",
        "ftp://x",
        "http://",
        "//x",
        "postgres://u:p@h/d",
        "HTTP://X.com",
        "file:///tmp",
    ),
    *(
        "1.50",
        "1.555",
        "1,50 EUR",
        "1E+30",
        " 1.5 ",
        "1_000",
        "-0",
        "1234567",
        ".5",
        "YWJj",
        "YWJ",
        "1/3",
        "Europe/Berlin",
    ),
]
VALUES = [0, 1, 3, 10, 1.5, 0.1, None, [], [1], [1, 2, 3], [1, "a"], ["2026-02-29"], ["2028-02-29"], {}, {"a": 1}]
KEYS = [{"2026-02-29": 1}, {"2028-02-29": 1}, {"7": 1}, {"x": 1}, {"order-7": 1}]

TYPES: dict[str, Any] = {
    **{
        each.__name__: each
        for each in (dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID, Decimal, Fraction, ZoneInfo)
    },
    **{f"ip {each.__name__}": each for each in (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network)},
    **{each.__name__: each for each in (AnyUrl, HttpUrl, FileUrl, PostgresDsn, ipaddress.IPv6Interface)},
    "any ip": IPvAnyAddress,
    "uuid4": UUID4,
    "aware": AwareDatetime,
    "naive": NaiveDatetime,
    "past": PastDate,
    "future": FutureDate,
    "base64": Base64Bytes,
    "pattern": re.Pattern,
    "json": Json,
    "money": Annotated[Decimal, Field(ge=0, max_digits=6, decimal_places=2)],
    "half": Annotated[Decimal, Field(gt=Decimal("0.5"), multiple_of=0.5)],
    "late": Annotated[dt.date, Field(ge=dt.date(2027, 1, 1))],
    "forward": Annotated[dt.timedelta, Field(gt=dt.timedelta(0))],
    "word": Annotated[str, StringConstraints(min_length=2, max_length=3, pattern="^a+$")],
    "count": Annotated[int, Field(ge=1, lt=10, multiple_of=3)],
    "choice": Literal["a", 7],
    "maybe": dt.date | None,
    "days": list[dt.date],
    "pair": tuple[int, str],
    "short": Annotated[list[int], Field(min_length=1, max_length=2)],
    "by day": dict[dt.date, int],
    "by id": dict[int, int],
    "checked": Annotated[dt.date, AfterValidator(lambda day: day)],
}


def handler(annotation: Any) -> Handler:
    def handle(value: Any) -> None: ...

    handle.__annotations__ = {"value": annotation}
    registry = Registry()
    task("handle", registry=registry)(handle)
    return registry.handlers["handle"]


def takes(read: Callable[[bytes], Any], value: Any) -> bool:
    try:
        read(json.dumps({"value": value}).encode())
    except ValidationError:
        return False
    return True


def coerced(name: str, value: Any) -> bool:
    """Whether pydantic reads a value of another type of JSON, which the schema refuses."""
    number = isinstance(value, int | float)
    return number or (name in ("count", "choice", "pair", "short") and (isinstance(value, str) or value == [True]))


@pytest.mark.parametrize("name", TYPES)
def test_a_gateway_accepts_what_the_handler_accepts(name: str) -> None:
    of = handler(TYPES[name])
    validator = compile_schema(of.schema)
    verdicts = {
        json.dumps(value): (validator.is_valid({"value": value}), takes(of.read, value))
        for value in [*TEXTS, *VALUES, *KEYS]
    }
    wrong = {value: both for value, both in verdicts.items() if both[0] != both[1]}
    assert {value: both for value, both in wrong.items() if both[0] or not coerced(name, json.loads(value))} == {}
    assert {both[1] for both in verdicts.values()} == {True, False}


def german(value: Any) -> Any:
    return "-".join(reversed(value.split("."))) if isinstance(value, str) else value


class OneField(BaseModel):
    due: dt.date
    _german = field_validator("due", mode="before")(german)


class Whole(BaseModel):
    due: dt.date

    @model_validator(mode="before")
    @classmethod
    def read(cls, data: Any) -> Any:
        return {"due": german(data["due"])} if isinstance(data, dict) and "due" in data else data


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[dt.date, BeforeValidator(german)], "31.12.2026"),
        (Annotated[dt.date | None, BeforeValidator(german)], "31.12.2026"),
        (list[Annotated[dt.date, BeforeValidator(german)]], ["31.12.2026"]),
        (OneField, {"due": "31.12.2026"}),
        (Whole, {"due": "31.12.2026"}),
    ],
)
def test_a_validator_of_the_handlers_own_may_accept_other_text(annotation: Any, value: Any) -> None:
    of = handler(annotation)
    assert compile_schema(of.schema).is_valid({"value": value})
    assert takes(of.read, value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[str, StringConstraints(pattern=re.compile(r"^(?=.*\d)[A-Z0-9]+$"))], "A1"),
        (Annotated[str, StringConstraints(pattern=re.compile("^a", re.IGNORECASE))], "A"),
        (list[Annotated[str, StringConstraints(pattern=re.compile(r"^(a)\1$"))]], ["aa"]),
        (dict[Annotated[str, StringConstraints(pattern=re.compile("^(?!x)"))], int], {"a": 1}),
        (dict[Annotated[str, StringConstraints(pattern=re.compile("^a", re.IGNORECASE))], int], {"A": 1}),
        (Annotated[str, WithJsonSchema({"type": "string", "pattern": "^(?=x)"})], "y"),
    ],
)
def test_a_pattern_that_a_gateway_cannot_match_is_left_to_the_handler(
    annotation: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    of = handler(annotation)
    assert compile_schema(of.schema).is_valid({"value": value})
    assert not compile_schema(of.schema).is_valid({"value": 5})
    assert takes(of.read, value)
    assert "gateways do not check a pattern" in caplog.text


def test_other_patterns_are_checked_by_the_gateway(caplog: pytest.LogCaptureFixture) -> None:
    of = handler(dict[Annotated[str, StringConstraints(pattern=re.compile("^a"))], Annotated[str, Field(pattern="^b")]])
    fits = compile_schema(of.schema).is_valid
    assert [fits({"value": each}) for each in ({"a": "b"}, {"a": "a"})] == [True, False]
    assert not caplog.text


@pytest.mark.parametrize("check", [5, {"type": "unknown"}, {"type": "decimal", "ge": "x"}, {}])
def test_a_schema_whose_own_keyword_cannot_be_read_is_refused(check: Any) -> None:
    with pytest.raises(ValueError, match="cannot be compiled"):
        compile_schema({"x-pydantic": check})


def test_submit_checks_what_a_serializer_has_written() -> None:
    written = Annotated[dt.date, PlainSerializer(lambda day: day.strftime("%d.%m.%Y"), return_type=str)]
    with pytest.raises(ValueError, match="a serializer writes values that do not fit"):
        handler(written).write(dt.date(2026, 1, 31))
    with pytest.raises(ValueError, match="a serializer writes values that do not fit"):
        handler(dict[tuple[int, int], str]).write({(1, 2): "a"})
    assert handler(dt.date).write(dt.date(2026, 1, 31)) == {"value": "2026-01-31"}


@pytest.mark.parametrize(
    ("annotation", "value", "fits"),
    [
        (Annotated[str, Field(json_schema_extra={"format": "uri"})], "example.com", True),
        (Annotated[str, WithJsonSchema({"type": "string", "format": "date"})], "31.12.2024", True),
        (list[Annotated[str, Field(json_schema_extra={"format": "hostname"})]], ["my_host"], True),
        (Annotated[dt.date, Field(json_schema_extra={"examples": ["2026-02-28"]})], "2026-02-29", False),
    ],
)
def test_a_format_that_only_describes_is_not_checked(annotation: Any, value: Any, fits: bool) -> None:
    of = handler(annotation)
    assert compile_schema(of.schema).is_valid({"value": value}) == takes(of.read, value) == fits
