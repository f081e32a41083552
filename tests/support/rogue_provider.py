"""An OpenID Connect provider that a test can make lie: it sends what the test wants, signed as the test wants."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "dashboard", "the secret of the dashboard, 32 bytes"
Claims = dict[str, Any]


@dataclass
class RogueProvider:
    """What it does unless a test changes it is right. `requests` are the parameters of each token request."""

    port: int = 0
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1"}))
    metadata: dict[str, Any] = field(default_factory=dict)
    claims: Claims = field(default_factory=dict)
    userinfo: Claims = field(default_factory=dict)
    sign: Callable[[RogueProvider, Claims], str] = lambda provider, claims: provider.signed(claims)
    answer: dict[str, Any] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def signed(self, claims: Claims) -> str:
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)

    def with_secret(self, claims: Claims) -> str:
        return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])

    def with_public_key(self, claims: Claims) -> str:
        public = OctKey.import_key(self.key.as_pem(private=False))
        return jwt.encode({"alg": "HS256"}, claims, public, algorithms=["HS256"])

    def unsigned(self, claims: Claims) -> str:
        parts = ({"alg": "none"}, claims)
        return (
            ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."
        )

    def authorized(self, url: str) -> str:
        """What the browser of someone who agrees is sent to."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.begun = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': 'c0de', 'state': asked['state']})}"

    def described(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/leave",
            "id_token_signing_alg_values_supported": ["RS256"],
            **self.metadata,
        }

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        """The answer to a token request, if it fits its authorization request."""
        self.requests.append(asked)
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge != self.begun["code_challenge"] or asked["code"] != "c0de":
            return {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "42",
            "exp": now + 300,
            "iat": now,
            "nonce": self.begun["nonce"],
            "email": "ann@example.com",
            "groups": ["queue-admins"],
            **self.claims,
        }
        known = {name: value for name, value in claims.items() if value is not None}
        return {"access_token": "a", "token_type": "Bearer", "id_token": self.sign(self, known), **self.answer}


@contextmanager
def rogue_provider() -> Iterator[RogueProvider]:
    """A provider on this machine."""
    provider = RogueProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages: dict[str, Any] = {
                "/.well-known/openid-configuration": provider.described(),
                "/keys": {"keys": [provider.key.as_dict(private=False)]},
                "/userinfo": provider.userinfo,
            }
            self._say(pages.get(self.path, {}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._say(provider.token({name: values[0] for name, values in parse_qs(body).items()}))

        def _say(self, answer: dict[str, Any]) -> None:
            said = json.dumps(answer).encode()
            self.send_response(400 if "error" in answer else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *about: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
