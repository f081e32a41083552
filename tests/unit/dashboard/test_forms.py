"""Forms from schemas: each value comes back exactly, mistakes stand at their field, hidden values stay hidden."""

from __future__ import annotations

from typing import Any

import pytest

from firmq.dashboard.forms import ENTER_AGAIN, Field, blamed, fields_of, filled, read
from firmq.shared.domain.redaction import HIDDEN, Redaction

REDACTION = Redaction(("*password*", "customer.iban"))
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "note": {"type": "string", "default": "none"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "size": {"type": "integer", "minimum": 1},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "urgent": {"type": "boolean"},
        "colour": {"$ref": "#/$defs/Colour"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "customer": {"type": "object"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "password": {"type": "string"},
    },
    "required": ["name", "share"],
    "$defs": {"Colour": {"enum": ["red", "green", 3]}},
}


def _sent(fields: list[Field]) -> dict[str, str]:
    """What a browser sends for a form that is left as it is: lines end with CR LF."""
    return {each.name: each.text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n") for each in fields}


DATA: list[Any] = [
    {"name": "a", "share": 1.5, "size": 3, "urgent": True, "colour": "red", "either": 3, "list": [1, 2]},
    {"name": "", "share": None, "note": "", "maybe": None, "size": None, "colour": None},
    {"name": "two\nlines", "note": "  spaced  ", "share": 10**30, "urgent": "yes", "colour": 3, "either": "3"},
    {"name": "a\r\nb\rc", "note": "\x00\u202e", "share": "1", "size": True, "list": {}},
    {"name": 4, "share": 1, "extra": {"deep": [1]}, "customer": {"iban": "•"}},
    {"share": 1e-9},
    {},
]


@pytest.mark.parametrize("data", DATA)
def test_a_form_left_as_it_is_gives_back_the_same_data(data: Any) -> None:
    given, _, mistakes = read(_sent(fields_of(SCHEMA, REDACTION, data)), 100)
    missing = {name: value for name, value in given.items() if name not in data}
    assert ({name: given[name] for name in given if name in data}, mistakes) == (data, [])
    # A required field that is left empty is an empty text, or null where that is allowed; the schema decides.
    assert missing.items() <= {"name": "", "share": None}.items()
    assert all(type(given[name]) is type(value) for name, value in data.items())


@pytest.mark.parametrize("data", ["text", "two\nlines", 3, None, [1, {"a": "b"}], {"any": "thing"}, "", True])
@pytest.mark.parametrize("schema", [{}, {"type": "string"}, {"type": ["object", "null"]}, SCHEMA, True])
def test_data_of_any_schema_comes_back(schema: Any, data: Any) -> None:
    if schema is SCHEMA and isinstance(data, dict):
        return
    given, _, mistakes = read(_sent(fields_of(schema, REDACTION, data)), 100)
    assert (given, type(given), mistakes) == (data, type(data), [])


def test_each_kind_of_value_has_its_widget() -> None:
    found = {each.key: each for each in fields_of(SCHEMA, REDACTION)}
    assert {key: each.widget for key, each in found.items()} == {
        **dict.fromkeys(("name", "note", "maybe", "size", "share"), "line"),
        **dict.fromkeys(("urgent", "colour"), "choice"),
        **dict.fromkeys(("either", "customer", "list", ""), "json"),
        "password": "secret",
    }
    assert found["colour"].choices == ['"red"', '"green"', "3"]
    assert (found["size"].help, found["note"].default, found["name"].required) == ("at least 1", '"none"', True)


def test_what_is_not_a_number_or_json_is_told_at_its_field() -> None:
    fields = fields_of(SCHEMA, REDACTION)
    sent = _sent(fields) | {"data/number/size": "three", "data/json/list": "[1,", "rest/json/": "3"}
    data, _, mistakes = read(sent, 100)
    assert data["size"] == "three"  # which the schema refuses
    marked, others = blamed(filled(fields, sent, REDACTION), [*mistakes, (("data", "customer", "iban"), "is short")])
    told = {each.key: each.mistakes for each in marked if each.mistakes}
    assert "not JSON" in told["list"][0]
    assert told[""] == ("must be a JSON object",)
    assert told["customer"] == ("iban: is short",)
    assert others == []
    assert {each.key: each.text for each in marked if each.text}["list"] == "[1,"


def test_a_mistake_without_a_field_is_kept() -> None:
    fields = [Field(key="cron", label="Cron"), Field(key="options", kind="json", label="Other")]
    marked, others = blamed(
        fields, [((), "is late"), (("retry", "jitter"), "must be small"), (("cron",), "is no cron")]
    )
    assert [each.mistakes for each in marked] == [("is no cron",), ("retry.jitter: must be small",)]
    assert others == ["is late"]


def test_hidden_values_are_not_put_back_into_the_form() -> None:
    placeholder = f"{HIDDEN}#1-abcdef"
    fields = fields_of(SCHEMA, REDACTION, {"name": "a", "password": placeholder, "customer": {"iban": placeholder}})
    assert read(_sent(fields), 100)[0]["password"] == placeholder
    sent = _sent(fields) | {"data/text/password": "s3cret", "data/json/customer": '{"iban": "DE1", "a": 1}'}
    again = filled(fields, sent, REDACTION)
    assert "s3cret" not in str(again)
    assert "DE1" not in str(again)
    _, _, mistakes = read(_sent(again), 100)
    assert (("data", "password"), ENTER_AGAIN) in mistakes
    kept = filled(fields, _sent(fields), REDACTION)
    assert read(_sent(kept), 100)[0]["customer"] == {"iban": placeholder}


def test_data_is_read_as_the_form_was_shown_although_the_schema_changed() -> None:
    sent = _sent(fields_of(SCHEMA, REDACTION, {"name": "a", "share": 1, "size": 3}))
    fields = filled(fields_of({"type": "object", "properties": {"new": {}}}, REDACTION), sent, REDACTION)
    assert read(_sent(fields), 100)[0] == {"name": "a", "share": 1, "size": 3}
