"""The dependencies of the pages, held by the app that serves them, and the two ways in which a view answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from flask import current_app, flash, redirect, render_template
from werkzeug.local import LocalProxy

from firmq.dashboard.auth.login_throttle import LoginThrottle
from firmq.dashboard.auth.security import person
from firmq.dashboard.auth.sessions import Sessions
from firmq.dashboard.auth.users import Users
from firmq.dashboard.metrics import Metrics
from firmq.dashboard.queries import Queries
from firmq.dashboard.stores import Stores
from firmq.shared.config.settings import Settings
from firmq.shared.domain.redaction import Redaction

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

SHOWN = "firmq.shown"
"""The key in the environment of a request with the name of the store that the page shows, where there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """The stores and helpers of pages."""

    settings: Settings
    stores: Stores
    queries: Queries
    redaction: Redaction
    metrics: Metrics
    users: Users
    sessions: Sessions
    login_throttle: LoginThrottle


context = cast("PageContext", LocalProxy(lambda: current_app.extensions["page_context"]))
"""The dependencies of the app that serves the current request."""


def opened(feature: str) -> Any:
    """Returns the resource that a feature opened for the app of the current request."""
    return current_app.extensions["features"][feature]


def show(template: str, **values: Any) -> str:
    """Returns a page, with the state of the system as `now`. Raises StoreUnavailable."""
    return render_template(template, now=context.queries.snapshot(), **values)


def changed(what: str, about: str, detail: str = "", *, to: str, message: str = "") -> Response:
    """Records a change in the audit record, and sends the browser to a page that shows it, with a message."""
    context.stores.audit.record(person().name, what, about, detail)
    return recorded(to, message)


def recorded(to: str, message: str = "") -> Response:
    """Does the rest of `changed`, for a change that is in the audit record already."""
    context.queries.forget()
    if message:
        flash(message)
    return redirect(to)
