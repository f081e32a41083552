"""Serves the dashboard below a path, which a proxy removes from requests and sends as X-Forwarded-Prefix."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+){1,8}")
_LINK = re.compile(r'(\s(?:href|src|(?:form)?action|hx-(?:get|post)|data-copy-from)=")/(?!/)')


class BelowPath:
    """Adds the path to the links of each page and to redirects; the pages themselves do not know it."""

    def __init__(self, app: Any, trusted_proxies: Collection[str]) -> None:
        self.app: WSGIApplication = app
        self.config = app.config
        self.trusted_proxies = trusted_proxies

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        prefix = environ.get("HTTP_X_FORWARDED_PREFIX", "").rstrip("/")
        if environ.get("REMOTE_ADDR") not in self.trusted_proxies or not _PREFIX.fullmatch(prefix):
            return self.app(environ, start_response)
        method = environ["REQUEST_METHOD"]
        # The length in an answer to HEAD is the length of the page, so the page is needed for it.
        response = Response.from_app(self.app, {**environ, "REQUEST_METHOD": "GET"} if method == "HEAD" else environ)
        for name in ("Location", "HX-Redirect"):
            if response.headers.get(name, "").startswith("/"):
                response.headers[name] = prefix + response.headers[name]
        if response.mimetype == "text/html":
            response.data = _LINK.sub(rf"\g<1>{prefix}/", response.get_data(as_text=True))
        return response(environ, start_response)
