"""The workers: what each does, and how it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, render_template

if TYPE_CHECKING:
    from dashboard.app import Desk


def page(desk: Desk) -> Blueprint:
    """`/workers`"""
    blueprint = Blueprint("workers", __name__)

    @blueprint.get("/workers")
    def workers() -> str:
        return render_template("workers.html", now=desk.queries.look())

    return blueprint
