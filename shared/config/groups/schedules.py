"""Declared schedules, and the job that runs schedules."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Mappings, Seconds


class ScheduleSettings(Group):
    """Declared schedules, and the job that runs schedules."""

    housekeeper_schedules_interval: Seconds = at(
        "housekeeper.schedules.interval", 0.5, "Pause between checks for due schedules.", gt=0
    )
    housekeeper_schedules_grace: Seconds = at(
        "housekeeper.schedules.grace", 60, "Delay after which a due time of a schedule counts as missed."
    )
    schedules: Mappings | None = at(
        "schedules", None, "Schedules by name, as PUT /schedules/NAME takes them; one removed here is deleted."
    )
