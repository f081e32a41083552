"""The base of all groups of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from firmq.shared.config.stores import Stores


def at(path: str, default: Any, description: str, **bounds: Any) -> Any:
    """Returns the field of a setting whose place in the YAML file is `path`."""
    return Field(default, description=description, json_schema_extra={"path": path}, **bounds)


class Group(BaseModel):
    """Base class of groups. Validation is built when settings are loaded: only `Settings` needs it, no single group."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def of(cls, settings: Group) -> Self:
        """Returns settings as this group, which a feature adds: `Settings` does not name its fields."""
        return cast("Self", settings)

    def takes_webhooks(self, *, signed: bool) -> bool:
        """Returns whether tasks may have webhooks; `signed`: only if this part has the secrets that sign them."""
        return False

    def has_other_keys(self) -> bool:
        """Returns whether there may be API keys beside those of the settings."""
        return False

    def sign_in_mark(self) -> str:
        """Returns a digest of how an identity provider gives roles, whose change ends sessions; "" without one."""
        return ""

    # --- What a feature's group can add; `Settings` calls these for each feature ---

    ADDRESSES: ClassVar[tuple[str, ...]] = ()
    """Its settings with addresses of Redis, which take the place of REDIS_URL."""

    def check(self) -> None:
        """Checks values that have to fit together. Raises ValueError."""

    def spread(self) -> Stores | None:
        """Returns the stores of the system if it has several addresses. Raises ValueError for invalid ones."""
        return None

    def modules(self) -> tuple[str, ...]:
        """Returns the modules of its handlers, for executors."""
        return ()

    def queues_beside(self) -> Mapping[str, str]:
        """Returns queues of others from which a worker also takes work, each with the queue of the tasks made of it."""
        return {}
