"""In which format the data in Redis is, so that an older and a newer version never misread each other.

The number is kept in Redis. Every new connection looks at it, and every script does in the step that changes data
(`_prelude.lua`): a part that does not know the format refuses to work and says so. When the number has to go up,
and when it must not, shared/README.md says.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.redis import keys

KEY = keys.FORMAT
FORMAT = 2
"""What this version writes."""
OLDEST_READ = 2
"""The oldest format that this version works with; it raises the number to its own."""

RAISE = """
if tonumber(redis.call('GET', KEYS[1])) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
"""
"""Never lowers it: a still newer part may have been quicker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """Whether this version works with a format; `refusal` says why not, and `raise_it` asks for its own number."""

    refusal: str = ""
    raise_it: bool = False


def judge(found: bytes | str, ours: int = FORMAT, oldest: int = OLDEST_READ) -> SchemaCheck:
    """What to do about data whose format is `found`."""
    shown = found.decode(errors="replace") if isinstance(found, bytes) else found
    if not shown.isdecimal():
        return SchemaCheck(refusal=f"the data in Redis is marked as of format {shown!r}, which no version wrote")
    number = int(shown)
    if number > ours:
        return SchemaCheck(
            refusal=f"the data in Redis is of format {number} and this version reads up to {ours}: "
            "run the version that wrote it, or a newer one"
        )
    if number < oldest:
        return SchemaCheck(
            refusal=f"the data in Redis is of format {number} and this version reads from {oldest} on: "
            "start a version in between first, which brings it up to date"
        )
    return SchemaCheck(raise_it=number < ours)
