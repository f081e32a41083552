"""Quiet hours: a part of each day in which only urgent messages are sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_FORM = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})(?:\s+(\S+))?")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` to `end` by the clocks of a zone; over midnight if the end is earlier."""

    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def read(cls, text: str) -> QuietHours | None:
        """Parses text such as "22:00-07:00 Europe/Berlin"; None for empty text. Raises ValueError."""
        if not text.strip():
            return None
        match = _FORM.fullmatch(text.strip())
        if not match:
            raise ValueError('must look like "22:00-07:00" or "22:00-07:00 Europe/Berlin"')
        start, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
        try:
            return cls(start, end, ZoneInfo(match[5] or "UTC"))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"has an unknown time zone: {match[5]}") from None

    def cover(self, at: datetime) -> bool:
        """Returns whether a moment is in the quiet hours."""
        now = at.astimezone(self.zone).time()
        if self.start <= self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end
