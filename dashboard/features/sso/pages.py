"""Sign-in at the identity provider; personal API keys: users create and revoke their own, admins revoke any."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import cast

from flask import Blueprint, abort, current_app, g, redirect, request, url_for
from werkzeug.wrappers import Response

from firmq.dashboard.auth.security import person, safe_target
from firmq.dashboard.auth.users import Person, Role
from firmq.dashboard.context import PageContext, changed, context, opened, show
from firmq.dashboard.features.sso.oidc import IdentityProvider, SignInFailed
from firmq.dashboard.pages import sign_in
from firmq.shared.domain.duration import duration
from firmq.shared.features.sso.personal_keys import PersonalKeys, TooManyKeys
from firmq.shared.features.sso.settings import SsoSettings
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.api_keys import Scope

log = logging.getLogger(__name__)

blueprint = Blueprint("sso", __name__, template_folder="templates")

_OF_ROLE = {
    Role.VIEWER: {Scope.READ},
    Role.OPERATOR: {Scope.READ, Scope.OPERATE, Scope.SUBMIT},
    Role.ADMIN: set(Scope),
}
_NO_OWNER = "only users of DASHBOARD_USERS and of the identity provider have personal keys: sign in as one of them"


class Accounts:
    """The identity provider and the personal keys of an app, each None if the settings have none."""

    def __init__(self, context: PageContext) -> None:
        """Call it in the context of the app. Exits with status 2 when Authlib is missing for a provider."""
        settings, redis = context.settings, context.sessions.redis
        self.settings = SsoSettings.of(settings)
        has_provider, app = bool(self.settings.oidc_issuer), current_app
        self.provider = IdentityProvider(app, settings, redis, context.users) if has_provider else None
        self.keys = PersonalKeys(Scripts(redis, confirm_writes=settings.confirm_writes))


def _accounts() -> Accounts:
    return cast("Accounts", opened("sso"))


@blueprint.get("/sign-in/oidc")
def to_provider() -> Response | tuple[str, int]:
    target = safe_target(request.args.get("next", "/"))
    try:
        return redirect(target) if g.person else _provider().begin(target)
    except SignInFailed as error:
        return sign_in.page(target, problem=str(error)), 503


@blueprint.get("/sign-in/oidc/callback")
def from_provider() -> Response | tuple[str, int]:
    try:
        found, target = _provider().finish()
    except SignInFailed as error:
        return sign_in.page("/", problem=str(error)), 401
    context.sessions.begin_external(found)
    log.info("signed in by the identity provider", extra={"name_given": found.name, "role": found.role.name})
    return redirect(target)


@blueprint.get("/sign-in/oidc/leave")
def leave_provider() -> Response | tuple[str, int]:
    try:
        return redirect(_provider().sign_out_url() or "/sign-in")
    except SignInFailed as error:
        return sign_in.page("/", problem=str(error)), 503


def _provider() -> IdentityProvider:
    return _accounts().provider or abort(404)


@blueprint.get("/keys")
def own() -> str:
    return _page()


@blueprint.post("/keys/create")
def create() -> str:
    """Shows the new key in the response, and never again: a redirect would have to store it."""
    store, user, settings = _keys(), person(), _accounts().settings
    if not user.account:
        abort(403, _NO_OWNER)
    label, scopes = request.form.get("label", "").strip(), request.form.getlist("scope")
    allowed = scopes_of(user)
    if not label or len(label) > 60 or not label.isprintable():
        abort(400, "a key needs a label of at most 60 printable characters")
    if not scopes or not set(scopes) <= set(allowed):
        abort(400, f"a key of this role can have: {', '.join(allowed) or 'no scope'}")
    days, most = request.form.get("days", ""), int(settings.personal_key_lifetime // 86_400)
    if not (days.isascii() and days.isdigit() and len(days) < 5 and 1 <= int(days) <= most):
        abort(400, f"a key is valid for 1 to {most} days")
    try:
        made, sent = store.create(
            user.account,
            user.name,
            label,
            [each for each in allowed if each in scopes],
            timedelta(days=int(days)),
            settings.personal_keys_per_user,
        )
    except TooManyKeys as error:
        abort(409, str(error))
    detail = f"{label}: {', '.join(made.scopes)}, for {duration(timedelta(days=int(days)))}; client {made.client}"
    context.stores.audit.record(user.name, "created API key", made.id, detail)
    return _page(sent=sent)


@blueprint.post("/keys/<string:name>/revoke")
def revoke(name: str) -> Response:
    user, store = person(), _keys()
    found = next((key for key in store.all() if key.id == name), None)
    if found is None or not (user.may(Role.ADMIN) or user.account == found.owner):
        abort(404, "there is no such key: it was revoked or has expired, or it belongs to another user")
    store.revoke(name)
    message = f"The key {found.label} is revoked: gateways refuse it from now on."
    return changed("revoked API key", name, f"{found.label} of {found.name}", to=url_for(".own"), message=message)


def _keys() -> PersonalKeys:
    """Answers 404 without PERSONAL_KEYS."""
    return _accounts().keys if _accounts().settings.personal_keys else abort(404)


def scopes_of(user: Person) -> list[Scope]:
    """Returns the scopes that keys of a user may have."""
    return [each for each in Scope if each in _accounts().settings.personal_keys and each in _OF_ROLE[user.role]]


def _page(sent: str = "") -> str:
    user, store = person(), _keys()
    found = [key for key in store.all() if user.may(Role.ADMIN) or key.owner == user.account]
    return show(
        "sso/keys.html",
        keys=list(zip(found, store.last_used(found), strict=True)),
        sent=sent,
        user=user,
        scopes=scopes_of(user),
        days=int(_accounts().settings.personal_key_lifetime // 86_400),
        most=_accounts().settings.personal_keys_per_user,
    )
