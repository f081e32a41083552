"""Sign-in with the identity of a company: OpenID Connect, the authorization code flow with PKCE, by Authlib.

Authlib keeps state, nonce and code verifier of a sign-in in the signed cookie of the browser, and validates the ID
token. Redis has the states of sign-ins that succeeded only, as strangers could fill it by starting sign-ins.
Here are the rules that Authlib leaves to its users: which algorithms and audience are accepted, that the metadata has
the issuer of the settings, that a state is used once, and which role the claims give.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from flask import request, session
from werkzeug.wrappers import Response

from firmq.dashboard.auth.security import safe_target
from firmq.dashboard.auth.users import Person, Role, Users, account_digest
from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.features.sso.keys import SsoKeys
from firmq.shared.features.sso.settings import SsoSettings
from firmq.shared.redis.client import keys_of, translated

if TYPE_CHECKING:
    from flask import Flask
    from redis import Redis

log = logging.getLogger(__name__)

ALGORITHMS = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}  # fmt: skip
"""Signatures by a key that only the provider has: none, and those with the client's secret, are left out."""
WITHIN = 5.0
"""Seconds for each answer of the provider."""
_STATE = "_state_oidc_"
"""The beginning of the names of Authlib's states in a session."""
_GOOD_FOR = 3600
"""Seconds for which Authlib keeps a state."""
_FAILED = "The sign-in failed or has expired: try again."
CLOCKS_APART = 30
"""Seconds by which the provider's clock may differ."""


class SignInFailed(Exception):
    """The sign-in did not succeed; the text is for the user."""


class IdentityProvider:
    """The provider of the settings."""

    def __init__(self, app: Flask, settings: Settings, redis: Redis, users: Users) -> None:
        """Exits with status 2 when Authlib is not installed."""
        try:
            from authlib.integrations.flask_client import OAuth
        except ImportError:
            exit_with("OIDC_ISSUER is set, and Authlib is not installed: pip install 'firmq[dashboard]'")
        self.settings = SsoSettings.of(settings)
        self.redis = redis
        self.users = users
        self.home = settings.dashboard_url.rstrip("/")
        self.client: Any = OAuth(app).register(
            "oidc",
            client_id=self.settings.oidc_client_id,
            client_secret=self.settings.oidc_client_secret or None,
            server_metadata_url=f"{self.settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(self.settings.oidc_scopes),
                "code_challenge_method": "S256",
                "default_timeout": WITHIN,
                **({} if self.settings.oidc_client_secret else {"token_endpoint_auth_method": "none"}),
            },
        )

    def begin(self, target: str) -> Response:
        """Returns the redirect to the provider; the user returns to `target`. Raises SignInFailed."""
        session["target"] = safe_target(target)
        # Sign-ins that were not finished stay in the cookie, which may have four kilobytes.
        for name in sorted((each for each in session if each.startswith(_STATE)), key=_end)[:-1]:
            session.pop(name)
        with _explained():
            self._metadata()
            return cast("Response", self.client.authorize_redirect(f"{self.home}/sign-in/oidc/callback"))

    def finish(self) -> tuple[Person, str]:
        """Returns the user, and the page to continue with. Raises SignInFailed."""
        target, state = safe_target(str(session.get("target", "/"))), request.args.get("state", "")
        used = SsoKeys.beside(keys_of(self.redis)).dashboard_sign_in(hashlib.sha256(state.encode()).hexdigest())
        with translated():
            is_good = time.time() < _end(_STATE + state) and not self.redis.exists(used)
        if not is_good:
            raise SignInFailed(_FAILED)
        with _explained():
            person = self._person(self._claims())
        with translated():
            self.redis.set(used, "", ex=_GOOD_FOR)
        return person, target

    def sign_out_url(self) -> str | None:
        """Returns where to sign out of the provider; None if it has no such page. Raises SignInFailed."""
        with _explained():
            if not self._metadata().get("end_session_endpoint"):
                return None
            made = self.client.create_logout_url(
                post_logout_redirect_uri=f"{self.home}/sign-in", client_id=self.settings.oidc_client_id
            )
            return str(made["url"])

    def _metadata(self) -> Mapping[str, Any]:
        """Returns the metadata of the provider, read at the first sign-in. Raises SignInFailed if it is another's."""
        found: dict[str, Any] = self.client.load_server_metadata()
        if found.get("issuer") != self.settings.oidc_issuer:
            found.pop("_loaded_at", None)
            raise SignInFailed("The issuer in the metadata of the identity provider differs from OIDC_ISSUER.")
        offered = found.get("id_token_signing_alg_values_supported") or ["RS256"]
        found["id_token_signing_alg_values_supported"] = [each for each in offered if each in ALGORITHMS]
        return found

    def _claims(self) -> dict[str, Any]:
        """Returns the claims of the validated ID token, completed by the user info."""
        metadata, issuer = self._metadata(), self.settings.oidc_issuer
        if request.args.get("iss", issuer) != issuer:
            raise SignInFailed("The response is from another identity provider: try again.")
        token = self.client.authorize_access_token(
            claims_options={
                "iss": {"essential": True, "value": issuer},
                "aud": {"essential": True, "value": self.settings.oidc_client_id},
            },
            leeway=CLOCKS_APART,
        )
        claims = dict(token.get("userinfo") or {})
        if not claims:
            raise SignInFailed("The identity provider sent no ID token.")
        path = self.settings.oidc_roles_claim
        if _at(claims, path) is None and metadata.get("userinfo_endpoint"):
            more = self.client.userinfo(token=token)
            if more.get("sub") == claims["sub"]:
                # By its whole path: the token may have another part of the same claim.
                claims = {**more, **claims, path: _at(more, path)}
        return claims

    def _person(self, claims: Mapping[str, Any]) -> Person:
        claim = self.settings.oidc_name_claim
        if claim == "email" and claims.get("email_verified") is False:
            claim = "sub"  # anybody could have entered the address of another
        name = str(claims.get(claim) or claims["sub"])[:200]
        if not name.isprintable():
            raise SignInFailed("The name of this account has unprintable characters.")
        role = role_of(_at(claims, self.settings.oidc_roles_claim), self.settings.oidc_roles)
        if role is None:
            log.warning("sign-in without a role", extra={"name_given": name})
            raise SignInFailed(f"{name} has no role here: OIDC_ROLES gives none for this account.")
        # A name of DASHBOARD_USERS is reserved for that user, also in the audit record.
        account = f"oidc:{account_digest(self.settings.oidc_issuer, str(claims['sub']))}"
        return Person(f"{name} (identity provider)" if self.users.named(name) else name, role, account)


def _end(name: str) -> float:
    """Returns when a sign-in that has begun in this browser ends; 0 for one that has not."""
    return float(session.get(name, {}).get("exp", 0))


def role_of(claim: object, roles: Mapping[str, str]) -> Role | None:
    """Returns the highest role that the values of a claim give, or `*` gives everyone; None for no role."""
    values = claim if isinstance(claim, list) else [claim]
    given = [roles[each] for each in (*values, "*") if isinstance(each, str) and each in roles]
    return max((Role[each.upper()] for each in given), default=None)


def _at(claims: Mapping[str, Any], path: str) -> object:
    """Returns a claim by its name, or by names of objects inside of each other, joined by dots."""
    if path in claims:
        return claims[path]
    value: object = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


@contextmanager
def _explained() -> Iterator[None]:
    """Turns every error of the flow into SignInFailed; the provider's message goes to the log only."""
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError
    from requests import RequestException

    try:
        yield
    except RequestException as error:
        log.warning("the identity provider does not answer", extra={"why": str(error)[:500]})
        raise SignInFailed("The identity provider does not answer: try again later.") from None
    except (AuthlibBaseError, JoseError, ValueError, KeyError, TypeError, RuntimeError) as error:
        log.warning("sign-in refused", extra={"why": f"{type(error).__name__}: {error}"[:500]})
        raise SignInFailed(_FAILED) from None
