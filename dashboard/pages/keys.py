"""Personal API keys: users create and revoke their own, admins revoke any."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, abort, request, url_for
from werkzeug.wrappers import Response

from firmq.dashboard.auth.security import person
from firmq.dashboard.auth.users import Person, Role
from firmq.dashboard.context import changed, context, show
from firmq.shared.domain.duration import duration
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.personal_keys import TooManyKeys

blueprint = Blueprint("keys", __name__)

_OF_ROLE = {
    Role.VIEWER: {Scope.READ},
    Role.OPERATOR: {Scope.READ, Scope.OPERATE, Scope.SUBMIT},
    Role.ADMIN: set(Scope),
}
_NO_OWNER = "only users of DASHBOARD_USERS and of the identity provider have personal keys: sign in as one of them"


@blueprint.before_request
def exists() -> None:
    """Answers 404 without PERSONAL_KEYS."""
    if not context.settings.personal_keys:
        abort(404)


@blueprint.get("/keys")
def own() -> str:
    return _page()


@blueprint.post("/keys/create")
def create() -> str:
    """Shows the new key in the response, and never again: a redirect would have to store it."""
    user, settings = person(), context.settings
    if not user.key_owner:
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
        made, sent = context.stores.personal_keys.create(
            user.key_owner,
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
    user, store = person(), context.stores.personal_keys
    found = next((key for key in store.all() if key.id == name), None)
    if found is None or not (user.may(Role.ADMIN) or user.key_owner == found.owner):
        abort(404, "there is no such key: it was revoked or has expired, or it belongs to another user")
    store.revoke(name)
    message = f"The key {found.label} is revoked: gateways refuse it from now on."
    return changed("revoked API key", name, f"{found.label} of {found.name}", to=url_for(".own"), message=message)


def scopes_of(user: Person) -> list[Scope]:
    """Returns the scopes that keys of a user may have."""
    return [each for each in Scope if each in context.settings.personal_keys and each in _OF_ROLE[user.role]]


def _page(sent: str = "") -> str:
    user, store = person(), context.stores.personal_keys
    found = [key for key in store.all() if user.may(Role.ADMIN) or key.owner == user.key_owner]
    return show(
        "keys.html",
        keys=list(zip(found, store.last_used(found), strict=True)),
        sent=sent,
        user=user,
        scopes=scopes_of(user),
        days=int(context.settings.personal_key_lifetime // 86_400),
        most=context.settings.personal_keys_per_user,
    )
