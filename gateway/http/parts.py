"""Which partitions answer a request, and the WSGI environ keys that the partition router sets."""

from __future__ import annotations

from enum import Enum, auto

PART = "firmq.part"
"""0 or absent, or the index among the partitions of a request: only the first of them logs and audits it."""
CALLER = "firmq.caller"
"""The `ApiKey` of a request that the router has let in and counted, or None without one; or why it is refused."""
POSITIONS = "firmq.positions"
"""A list that receives the cursor after each item of the page."""


class Across(Enum):
    """Which of several partitions answer an endpoint; `HANDLERS` of the router maps each to a function.

    An endpoint of a feature may name a function of its own in place of these, as "module:function"."""

    FIRST = auto()  # the first one: the answer does not depend on the partition
    ID = auto()  # the one that has the id in the path
    SCHEDULE = auto()  # the one that has the schedule in the path
    TASK = auto()  # the one in which the task is placed
    BATCH = auto()  # the one in which the batch is placed
    ALL = auto()  # all: each makes the change, or none
    STEP_DOWN = auto()  # the same, answered as the first one answers
    ONE = auto()  # those that know the object in the path; their answers are merged
    HOLDER = auto()  # the first one that knows the object in the path
    PAGES = auto()  # all, as one list of pages, by the ids
    PAGES_BY_ENTRY = auto()  # the same, by the ids of stream entries
    PAGES_BY_NAME = auto()  # the same, by the names
    BY_NAME = auto()  # all; items of the same name are merged
    KEYS = auto()  # the same for API keys, by their ids
    WORKERS = auto()  # the same for workers
    LOCKS = auto()  # all; their documents are merged, as are the next four
    WAITING = auto()
    BREAKDOWN = auto()
    TIMELINE = auto()
    CHECKS = auto()
    HEALTH = auto()  # all, reachable or not
    TEXTS = auto()  # all, one after the other
