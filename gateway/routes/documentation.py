"""Endpoints that document the API: index, OpenAPI document, a page to read and try it, and the kinds of problem.

They reveal nothing about the installation, so they need no API key."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from typing import Any

from firmq.gateway.http import errors
from firmq.gateway.http.across import Across
from firmq.gateway.http.endpoints import JSON, Answer, F, Reply, endpoint
from firmq.gateway.http.errors import KINDS
from firmq.shared.submission import refusals
from firmq.shared.submission.refusals import Refusal

_FOLDER = files("firmq.gateway.docs")
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_ASSETS = {
    "page.js": (_FOLDER / "page.js", _SCRIPT),
    "swagger-ui-5.35.0.min.js": (_FOLDER / "vendor" / "swagger-ui-5.35.0.min.js", _SCRIPT),
    "swagger-ui-5.35.0.min.css": (_FOLDER / "vendor" / "swagger-ui-5.35.0.min.css", _STYLE),
}
# The style sheet of Swagger UI has its icons in `data:` URLs.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'"
)


def _open(path: str, says: str, media_type: str = JSON) -> Callable[[F], F]:
    """Declares an endpoint that needs neither an API key nor Redis."""
    answer = Answer(description=says, media_type=media_type)
    return endpoint("GET", path, Across.FIRST, tag="documentation", answers={200: answer}, store=False, scope=None)


class Documentation:
    """The document is built at the first request, because most processes never serve it and start faster without."""

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe

    @cached_property
    def document(self) -> dict[str, Any]:
        return self._describe()

    @_open("/", "All paths with their methods.")
    def index(self) -> Reply:
        """Lists all paths with their methods."""
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
        """Returns the OpenAPI document."""
        return Reply(content=self.document)

    @_open("/docs", "The documentation page.", "text/html")
    def docs(self) -> Reply:
        """Shows the API documentation as a page that loads nothing from other hosts."""
        return Reply(
            content=(_FOLDER / "page.html").read_bytes(),
            media_type="text/html; charset=utf-8",
            headers={"Content-Security-Policy": _POLICY},
        )

    @_open("/docs/{name}", "The file.", "*/*")
    def asset(self, name: str) -> Reply:
        """Returns the style sheet and the scripts of the documentation page."""
        if name not in _ASSETS:
            raise Refusal(errors.NO_SUCH_PATH, f"no such file: use {' or '.join(_ASSETS)}")
        file, media_type = _ASSETS[name]
        return Reply(content=file.read_bytes(), media_type=media_type)

    @_open("/favicon.ico", "The icon.", "*/*")
    def favicon(self) -> Reply:
        """Returns the icon that browsers request by default."""
        return Reply(content=(_FOLDER / "icon.svg").read_bytes(), media_type="image/svg+xml")

    @_open("/problems", "All kinds of problem.")
    def problems(self) -> Reply:
        """Lists the kinds of problem."""
        return Reply(content={"items": [_explained(slug) for slug in KINDS], "next_cursor": None})

    @_open("/problems/{name}", "The kind of problem.")
    def problem(self, name: str) -> Reply:
        """Explains the `type` of a problem."""
        if name not in KINDS:
            raise Refusal(refusals.NOT_FOUND, f"no kind of problem is named {name}: GET /problems lists them")
        return Reply(content=_explained(name))


def _explained(slug: str) -> dict[str, Any]:
    kind = KINDS[slug]
    return {"type": kind.type, "status": kind.status, "title": kind.title, "meaning": kind.meaning}
