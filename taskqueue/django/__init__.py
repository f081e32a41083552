"""Task Queue in a Django project: a backend for Django's tasks, management commands, and a page of the admin.

INSTALLED_APPS = [..., "taskqueue.django"]
TASKS = {"default": {"BACKEND": "taskqueue.django.TaskQueueBackend", "OPTIONS": {"URL": "http://localhost:8000"}}}

A name is imported when it is first used, because Django imports this package before its settings are complete.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers."""

if TYPE_CHECKING:
    from taskqueue.django.backend import TaskQueueBackend
    from taskqueue.django.call import handler_options
    from taskqueue.django.transactions import submit_on_commit

__all__ = ["TaskQueueBackend", "handler_options", "submit_on_commit"]

_HOMES = {
    "TaskQueueBackend": "taskqueue.django.backend",
    "handler_options": "taskqueue.django.call",
    "submit_on_commit": "taskqueue.django.transactions",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
