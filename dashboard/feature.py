"""The contribution of a feature to the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firmq.shared.registry import features_of

if TYPE_CHECKING:
    from flask import Blueprint

    from firmq.dashboard.auth.users import Users
    from firmq.dashboard.context import PageContext
    from firmq.shared.config.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The pages of a feature, and its additions to the pages of the core."""

    name: str
    blueprint: Blueprint | None = None
    """Its pages. Its templates are in `templates/NAME/`."""
    serve: Callable[[Settings, Users], Any] | None = None
    """Returns the WSGI app of a system with several stores."""
    open: Callable[[PageContext], Any] = lambda context: None
    """Creates the object that its pages read with `opened(name)`, and templates with `features[name]`."""
    navigation: Sequence[tuple[str, str, str]] = ()
    """Entries of the menu: path of the section, path of the page, label."""
    pages_of_id: Sequence[str] = ()
    """First segments of paths that continue with an id."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """Templates by slot, such as "tasks.actions"; the templates of the core name the slots."""
    in_menu: Callable[[Settings], bool] = lambda settings: True
    """Whether these settings need its menu entries."""
    statistics: Callable[[str | None], Mapping[str, Any]] | None = None
    """Returns the history on the pages of all types, or of one: `report`, `percentiles`, `slowest`."""
    audit_link: Callable[[str, str], str] | None = None
    """Returns the path for an entry of the audit record, by its action and object; "" for none."""


def features() -> list[Feature]:
    """Returns the contributions of all features to the dashboard."""
    return features_of("dashboard")
