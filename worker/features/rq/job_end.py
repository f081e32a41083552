"""The end of an RQ job, which `report.lua` writes with that of its task (`_job_end.lua`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

WRITTEN_BY_RQ = b'{"written_by_rq":true}'
"""The end of a job that RQ's code has written itself."""


@dataclass(frozen=True, slots=True)
class RQJobEnd:
    """The end of a job that has completed, where RQ's code has not written it."""

    began_us: int
    ended_us: int
    """Both since 1970."""
    result_ttl: int
    """Seconds for which the result is kept; forever if negative."""
    execution: str
    """The name of its execution."""
    registered: bool
    """Whether RQ's registries have that execution."""
    value: str | None
    """The return value: base64 of the text by the job's serializer; None for None."""

    def encode(self) -> bytes:
        """Returns it in JSON; no field is null, which Lua would take for a value."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, separators=(",", ":")).encode()
