"""What a feature adds to the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from flask import Blueprint

    from firmq.dashboard.context import PageContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The pages of a feature, and what it adds to the pages of the core."""

    name: str
    blueprint: Blueprint
    """Its pages; the folder of its templates has its name."""
    open: Callable[[PageContext], Any]
    """Returns what its pages and templates read: `opened(name)`, and `features[name]` in templates."""
    navigation: Sequence[tuple[str, str, str]] = ()
    """Entries of the menu: the path of the section, that of the page, and its name."""
    pages_of_id: Sequence[str] = ()
    """Beginnings of paths that an id follows."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """The template that is shown at a place of a page of the core, by the name of the place."""
    statistics: Callable[[str | None], Mapping[str, Any]] | None = None
    """Returns what the pages of all types, or of one, show of the past: `report`, `percentiles`, `slowest`."""
    audit_link: Callable[[str, str], str] | None = None
    """Returns the path of what an entry of the audit record is about, by its action and object; "" for none."""


def features() -> list[Feature]:
    """Returns what all features add to the dashboard."""
    return features_of("dashboard")
