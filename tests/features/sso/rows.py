"""What sign-in and personal keys add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

CHANGES = ("/keys/create", "/keys/x/revoke")
FEW = (("personal_key_add", ("id", "{}", "local:a", 10, 1000)),)
NEW = ("personal_key_add",)
OTHER_KEYS = (("personal key", {"personal_keys": ("read",)}, f"fqp_{'a' * 12}_{'0' * 64}"),)
WITH_A_PASSWORD = (("OIDC_ISSUER", ["https://user:{}@one"]),)
