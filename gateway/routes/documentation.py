"""The API about itself: an index, the OpenAPI document, a page to read and try it, and what each problem means.

It tells nothing about this installation, so nobody needs a key for it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from gateway import errors
from gateway.docs import page
from gateway.endpoints import Answer, Reply, endpoint
from gateway.errors import KINDS, Refusal

_TAG = "documentation"
_ASSETS = {"docs.css": "text/css; charset=utf-8", "docs.js": "text/javascript; charset=utf-8"}
_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"


class Documentation:
    """Everything is made once: it does not change while the process runs."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.page = page.render(document).encode()

    @endpoint("GET", "/", tag=_TAG, answers={200: Answer(description="Where things are.")}, store=False, scope=None)
    def index(self) -> Reply:
        """Says where things are."""
        info = self.document["info"]
        addresses = {path: sorted(map(str.upper, methods)) for path, methods in self.document["paths"].items()}
        return Reply(
            content={
                "name": info["title"],
                "version": info["version"],
                "documentation": "/docs",
                "openapi": "/openapi.json",
                "addresses": addresses,
            }
        )

    @endpoint(
        "GET", "/openapi.json", tag=_TAG, answers={200: Answer(description="OpenAPI 3.1.")}, store=False, scope=None
    )
    def openapi(self) -> Reply:
        """Gives the OpenAPI document."""
        return Reply(content=self.document)

    @endpoint(
        "GET",
        "/docs",
        tag=_TAG,
        answers={200: Answer(description="A page.", media_type="text/html")},
        store=False,
        scope=None,
    )
    def docs(self) -> Reply:
        """Shows the documentation as a page that needs nothing from anywhere else."""
        return Reply(
            content=self.page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": _POLICY}
        )

    @endpoint(
        "GET",
        "/docs/{name}",
        tag=_TAG,
        answers={200: Answer(description="", media_type="*/*")},
        store=False,
        scope=None,
    )
    def asset(self, name: str) -> Reply:
        """Gives the page's style and script."""
        if name not in _ASSETS:
            raise Refusal(errors.NO_SUCH_PATH, "there is no such file")
        return Reply(content=(files("gateway.docs") / name).read_bytes(), media_type=_ASSETS[name])

    @endpoint(
        "GET",
        "/favicon.ico",
        tag=_TAG,
        answers={200: Answer(description="", media_type="*/*")},
        store=False,
        scope=None,
    )
    def favicon(self) -> Reply:
        """Gives the icon that browsers ask for unasked."""
        return Reply(content=(files("gateway.docs") / "icon.svg").read_bytes(), media_type="image/svg+xml")

    @endpoint("GET", "/problems", tag=_TAG, answers={200: Answer(description="All kinds.")}, store=False, scope=None)
    def problems(self) -> Reply:
        """Lists the kinds of problem."""
        return Reply(content={"items": [_explained(slug) for slug in KINDS], "next_cursor": None})

    @endpoint(
        "GET", "/problems/{name}", tag=_TAG, answers={200: Answer(description="A kind.")}, store=False, scope=None
    )
    def problem(self, name: str) -> Reply:
        """Explains the `type` of a problem."""
        if name not in KINDS:
            raise Refusal(errors.NOT_FOUND, f"there is no kind of problem {name}: GET /problems lists them")
        return Reply(content=_explained(name))


def _explained(slug: str) -> dict[str, Any]:
    kind = KINDS[slug]
    return {"type": kind.type, "status": kind.status, "title": kind.title, "meaning": kind.meaning}
