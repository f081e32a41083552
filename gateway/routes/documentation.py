"""The API about itself: an index, the OpenAPI document, a page to read and try it, and what each problem means.

It tells nothing about this installation, so nobody needs a key for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from typing import Any

from gateway.docs import page
from gateway.http import errors
from gateway.http.endpoints import JSON, Answer, F, Reply, endpoint
from gateway.http.errors import KINDS, Refusal

_ASSETS = {"docs.css": "text/css; charset=utf-8", "docs.js": "text/javascript; charset=utf-8"}
_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"


def _open(path: str, says: str, media_type: str = JSON) -> Callable[[F], F]:
    """Who asks needs neither a key nor a Redis."""
    answer = Answer(description=says, media_type=media_type)
    return endpoint("GET", path, tag="documentation", answers={200: answer}, store=False, scope=None)


class Documentation:
    """Everything is made once, for whoever asks first: most processes are never asked, and start sooner without it."""

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe

    @cached_property
    def document(self) -> dict[str, Any]:
        return self._describe()

    @cached_property
    def page(self) -> bytes:
        return page.render(self.document).encode()

    @_open("/", "Where things are.")
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

    @_open("/openapi.json", "OpenAPI 3.1.")
    def openapi(self) -> Reply:
        """Gives the OpenAPI document."""
        return Reply(content=self.document)

    @_open("/docs", "A page.", "text/html")
    def docs(self) -> Reply:
        """Shows the documentation as a page that needs nothing from anywhere else."""
        return Reply(
            content=self.page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": _POLICY}
        )

    @_open("/docs/{name}", "The file.", "*/*")
    def asset(self, name: str) -> Reply:
        """Gives the page's style and script."""
        if name not in _ASSETS:
            raise Refusal(errors.NO_SUCH_PATH, "there is no such file")
        return Reply(content=(files("gateway.docs") / name).read_bytes(), media_type=_ASSETS[name])

    @_open("/favicon.ico", "The icon.", "*/*")
    def favicon(self) -> Reply:
        """Gives the icon that browsers ask for unasked."""
        return Reply(content=(files("gateway.docs") / "icon.svg").read_bytes(), media_type="image/svg+xml")

    @_open("/problems", "All kinds.")
    def problems(self) -> Reply:
        """Lists the kinds of problem."""
        return Reply(content={"items": [_explained(slug) for slug in KINDS], "next_cursor": None})

    @_open("/problems/{name}", "A kind.")
    def problem(self, name: str) -> Reply:
        """Explains the `type` of a problem."""
        if name not in KINDS:
            raise Refusal(errors.NOT_FOUND, f"there is no kind of problem {name}: GET /problems lists them")
        return Reply(content=_explained(name))


def _explained(slug: str) -> dict[str, Any]:
    kind = KINDS[slug]
    return {"type": kind.type, "status": kind.status, "title": kind.title, "meaning": kind.meaning}
