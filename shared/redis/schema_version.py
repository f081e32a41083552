"""The schema version of the data in Redis, so that an older and a newer version never misread each other.

The number is kept in Redis. Every new connection checks it, and every script does in the step that changes data
(`_prelude.lua`): a component that does not know the format refuses to work. shared/README.md describes when the number
has to be raised, and when it must not be.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = 7
"""The format that this version writes."""
OLDEST_READ = 7
"""The oldest format that this version works with; the number is then raised to its own."""
_DIGITS = 9

RAISE = """
if tonumber(redis.call('GET', KEYS[1])) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
"""
"""Never lowers it: a newer component may have raised it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """Whether this version works with a format; `refusal` is why not, `raise_it` whether to raise the number."""

    refusal: str = ""
    raise_it: bool = False


def wrong_type(key: str) -> str:
    """Returns the refusal of a key that is no string. No step can quarantine it: every connection checks it first."""
    return f"{key} holds a value of the wrong type: restore it"


def of_another_name(key: str) -> str:
    """Returns the refusal of data whose format is at `key`, where versions kept it before format 6 renamed all keys."""
    return (
        f"the data in Redis has format 5 or older ({key}) and this version reads {OLDEST_READ} or newer: "
        "let the version that wrote it complete its tasks, then use another Redis database or KEY_PREFIX"
    )


def judge(found: bytes | str, key: str, ours: int = FORMAT, oldest: int = OLDEST_READ) -> SchemaCheck:
    """Returns how to treat data whose format is `found` at `key`."""
    shown = found.decode(errors="replace") if isinstance(found, bytes) else found
    shown = shown.partition(" ")[0]  # format 6 could have marks after its number
    if not shown.isdecimal() or len(shown) > _DIGITS:
        return SchemaCheck(refusal=f"the data in Redis has the unknown format {shown[:40]!r}: restore {key}")
    number = int(shown)
    if number > ours:
        return SchemaCheck(
            refusal=f"the data in Redis has format {number} and this version reads up to {ours}: "
            "run the version that wrote it, or a newer one"
        )
    if number < oldest:
        return SchemaCheck(
            refusal=f"the data in Redis has format {number} and this version reads {oldest} or newer: "
            "let the version that wrote it complete its tasks, then use another Redis database or KEY_PREFIX"
        )
    return SchemaCheck(raise_it=number < ours)
