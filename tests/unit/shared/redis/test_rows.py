"""Records as arguments of scripts."""

from __future__ import annotations

from firmq.shared.redis.rows import as_rows


def test_names_are_sent_once_and_a_missing_field_is_empty() -> None:
    assert as_rows([{"id": "a", "losses": 0, "error": None}, {"id": b"b", "due": 7, "losses": None}]) == [
        *(3, "id", "losses", "due"),
        *("a", 0, ""),
        *(b"b", "", 7),
    ]


def test_no_records_are_no_rows() -> None:
    assert as_rows([]) == [0]
