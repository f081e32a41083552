"""The pages: a form that submits a task, and the state of a task."""

from __future__ import annotations

from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from examples.flask_app import queue
from examples.flask_app.tasks import analyse_text
from firmq import NotFound, Unavailable, Unreachable

pages = Blueprint("pages", __name__)


@pages.get("/")
def form() -> str:
    """Shows the form."""
    return render_template("form.html")


@pages.post("/")
def submit() -> Response:
    """Submits a task, and goes to its page."""
    text = request.form.get("text", "").strip()
    if not text:
        abort(400, "the text is empty")
    task = analyse_text.submit(text=text)
    return redirect(url_for(".analysis", task_id=task.task_id), 303)


@pages.get("/analyses/<task_id>")
def analysis(task_id: str) -> str:
    """Shows progress, then the result; other tasks of the system are not found."""
    try:
        task = queue.client.get(task_id)
    except NotFound:
        abort(404)
    if task.type != "analyse-text":
        abort(404)
    return render_template("analysis.html", task=task)


@pages.errorhandler(Unavailable)
@pages.errorhandler(Unreachable)
def unavailable(error: Exception) -> tuple[str, int, dict[str, str]]:
    """Asks to try again, when the gateway cannot take a task or does not answer."""
    return render_template("unavailable.html"), 503, {"Retry-After": "5"}
