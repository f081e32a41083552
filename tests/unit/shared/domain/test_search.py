"""The search of task lists: what its words mean, and what an error says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from firmq.shared.domain.search import LONGEST, DataField, SearchError, canonical, load, parse, parse_data
from firmq.shared.domain.task import TaskState
from firmq.shared.stores.tasks import Filter, filter_of
from tests.support.data_fields import CASES


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("  ", {}),
        ("type:charge-card", {"type": "charge-card"}),
        ("state:failed", {"state": TaskState.FAILED}),
        ("status:failed", {"state": TaskState.FAILED}),
        ("queue:low tag:schedule:nightly", {"queue": "low", "tag": "schedule:nightly"}),
        ('error:"card declined"', {"error": "card declined"}),
        ('error:"a \\"b\\""', {"error": 'a "b"'}),
        ("error:http://shop/", {"error": "http://shop/"}),
        ("cause:0a1b worker:host-7 version:1.42", {"cause": "0a1b", "worker": "host-7", "app_version": "1.42"}),
        ("by:shop", {"submitted_by": "shop"}),
        ("9f3a", {"id": "9f3a"}),
        ("id:9f3a", {"id": "9f3a"}),
        ("age>1h", {"older_than": timedelta(hours=1)}),
        ("age<1.5d age>90m", {"newer_than": timedelta(hours=36), "older_than": timedelta(minutes=90)}),
        ("since:2030-01-31T12:00:00", {"since": datetime(2030, 1, 31, 12, tzinfo=UTC)}),
        ("until:2030-01-31", {"until": datetime(2030, 1, 31, tzinfo=UTC)}),
        ("deleted:yes", {"deleted": True}),
        ("data.customer.id:42", {"data": (DataField("customer.id", "42"),)}),
        ('data.name:"4 2"', {"data": (DataField("name", "4 2", quoted=True),)}),
        ("data.a:1 data.b:2", {"data": (DataField("a", "1"), DataField("b", "2"))}),
        ("data.url:http://shop/?a=1", {"data": (DataField("url", "http://shop/?a=1"),)}),
    ],
)
def test_words_become_a_filter(text: str, fields: dict[str, Any]) -> None:
    assert parse(text) == fields
    known = {"state": TaskState.FAILED, **fields} if "cause" in fields else fields
    assert filter_of({}, text) == Filter(**known)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("type:a colour:red", ["'colour:red'", "no field 'colour'", "type:", "data.NAME:", "age>"]),
        ("state:done", ["'state:done'", "pending", "failed"]),
        ("age>soon", ["'age>soon'", "age>90m"]),
        ("age>0h", ["'age>0h'"]),
        ("age:1h", ["'age:1h'", "no field 'age'"]),
        ("data.amount>3", ["'data.amount>3'", "data.customer.id:42"]),
        ("data.:3", ["'data.:3'"]),
        ("data.a..b:3", ["'data.a..b:3'"]),
        ("type:", ["'type:'", "the value is missing"]),
        ("type:a type:b", ["'type:b'", "appears twice"]),
        ("state:failed status:failed", ["appears twice"]),
        ("queue:a/b", ["'queue:a/b'", "A-Z"]),
        ("since:yesterday", ["'since:yesterday'", "2030-01-31T12:00:00Z"]),
        ("deleted:no", ["'deleted:no'", "yes"]),
        ("card declined?", ["'declined?'", "id"]),
        ('"card declined"', ["'\"card'"]),
        ('error:"\\q"', ["escape it as in JSON"]),
        ("data.a:1 data.b:1 data.c:1 data.d:1 data.e:1", ["'data.e:1'", "at most 4"]),
        ("data.a.b.c.d.e.f.g.h.i:1", ["at most 8 names"]),
        ("x" * (LONGEST + 1), ["shorten it to 500"]),
        ("a b", ["'b'", "appears twice"]),
    ],
)
def test_an_error_names_the_word_and_what_is_allowed(text: str, words: list[str]) -> None:
    with pytest.raises(SearchError) as caught:
        parse(text)
    assert all(each in str(caught.value) for each in words), caught.value


def test_a_field_is_not_given_beside_the_search_too() -> None:
    with pytest.raises(SearchError, match="type is in the search"):
        filter_of({"type": "a"}, "type:b")
    both = filter_of({"data": parse_data("a:1"), "queue": "low"}, "data.b:2 type:x")
    assert both == Filter(data=(DataField("a", "1"), DataField("b", "2")), queue="low", type="x")


@pytest.mark.parametrize("text", ["9f3a", "a:", ":1", "a.:1", "a>1"])
def test_data_of_a_parameter_has_fields_with_values(text: str) -> None:
    with pytest.raises(SearchError):
        parse_data(text)


@pytest.mark.parametrize(
    "numbers",
    [
        ("1", "1.0", "10e-1", "0.1e1", "0.1E+1", "1e0"),
        ("0", "-0", "0.000", "0e5"),
        ("-1200", "-1.2e3", "-12E2"),
        ("9007199254740993",),
        ("9007199254740992",),
    ],
)
def test_spellings_of_one_number_have_one_text(numbers: tuple[str, ...]) -> None:
    assert len({canonical(each) for each in numbers}) == 1


@pytest.mark.parametrize(
    "text", ["", "01", "+1", "1.", ".5", "1e", "0x1", "NaN", "Infinity", "1 ", "١", f"1e{'0' * 5000}1"]
)
def test_what_has_no_comparable_number_is_none(text: str) -> None:
    assert canonical(text) is None


@pytest.mark.parametrize(("data", "word", "matches"), CASES)
def test_values_compare_as_json(data: str, word: str, matches: bool) -> None:
    [wanted] = parse_data(word)
    assert wanted.matches(load(data.encode())) is matches


def test_a_field_is_shown_as_it_is_typed() -> None:
    for word in ("data.a:1", 'data.a:"1"', 'data.a:"4 2"'):
        assert str(parse(word)["data"][0]) == word
