"""Firmq in a Django project: a backend for Django's tasks, management commands, and a page of the admin.

INSTALLED_APPS = [..., "firmq.django"]
TASKS = {"default": {"BACKEND": "firmq.django.FirmqBackend", "OPTIONS": {"URL": "http://localhost:8000"}}}

A name is imported when it is first used, because Django imports this package before its settings are complete.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers."""

if TYPE_CHECKING:
    from firmq.django.backend import FirmqBackend
    from firmq.django.call import handler_options
    from firmq.django.transactions import submit_on_commit

__all__ = ["FirmqBackend", "handler_options", "submit_on_commit"]

_HOMES = {
    "FirmqBackend": "firmq.django.backend",
    "handler_options": "firmq.django.call",
    "submit_on_commit": "firmq.django.transactions",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
