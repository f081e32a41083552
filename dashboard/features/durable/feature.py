"""The steps and the output of a task on its page, and the forms of the signals that it waits for."""

from __future__ import annotations

from firmq.dashboard.feature import Feature
from firmq.dashboard.features.durable.pages import blueprint
from firmq.dashboard.features.durable.queries import DurableQueries

FEATURE = Feature(
    name="durable",
    blueprint=blueprint,
    open=DurableQueries,
    slots={
        "task.sections": "durable/steps.html",
        "task.forms": "durable/signals.html",
    },
)
