"""The list of features, and how each part finds their additions to it.

A feature is an optional part. It has a folder `features/NAME/` in each part to which it adds something; the
module `feature` there has one value, `FEATURE`, which the part's wiring reads. Nothing outside of these folders imports
them. To remove a feature, delete its folders and its line in `FEATURES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from pkgutil import resolve_name
from typing import Any

FEATURES: tuple[str, ...] = (
    "dev",
    "search",
    "bulk",
    "outbox",
    "history",
    "durable",
    "webhooks",
    "payloads",
    "rq",
    "alerts",
    "doctor",
    "timeline",
    "sso",
    "partitions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The contribution of a feature to `shared`. Names have the form "module:name" and are imported on first use."""

    keys: Any = None
    """Its `KeySpace`, if it has keys in Redis."""
    jobs: Sequence[str] = ()
    """The names of its housekeeping jobs; each lock has the name of its job."""
    timeline: str = ""
    """A function of `Scripts` that returns a `Source` of timeline events (`shared/domain/timeline.py`)."""
    settings: str = ""
    """Its group of settings, which becomes a part of `Settings`."""
    records: str = ""
    """A function of `Records` and settings that returns records extended by the tasks that the feature stores."""
    payloads: str = ""
    """A function of settings that returns where large values are kept (`shared/stores/payloads.py`)."""
    submissions: str = ""
    """Its `Submissions` (`shared/submission/submissions.py`), if it can spread a system over several stores."""
    checks: str = ""
    """A function of Redis, settings and the doctor's `Observation` that returns its findings."""
    conditions: str = ""
    """Its conditions: see `shared/conditions/conditions.py`."""
    commands: str = ""
    """Its commands (`shared/cli/command.py`) by name."""
    worker_options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Options of `firmq worker`, each with its setting and its text in `--help`."""
    public: Mapping[str, str] = field(default_factory=dict)
    """Its names in the package `firmq`, each with the module that has it."""
    alerts: str = ""
    """A function of `Scripts` that returns the alerts of the moment."""


def folders_of(part: str) -> list[Traversable]:
    """Returns the folders of the features that register in a part, such as "gateway", in the order of the list."""
    folder = files(f"firmq.{part}") / "features"
    return [each for name in FEATURES if ((each := folder / name) / "feature.py").is_file()]


@cache
def features_of(part: str) -> list[Any]:
    """Returns the contribution of each feature to a part."""
    return [import_module(f"firmq.{part}.features.{each.name}.feature").FEATURE for each in folders_of(part)]


def added(what: str) -> list[Any]:
    """Returns the objects that the features name in this field of `Feature`, such as "timeline"."""
    return [resolve_name(name) for each in features_of("shared") if (name := getattr(each, what))]
