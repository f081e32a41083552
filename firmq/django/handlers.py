"""Sets Django up in an executor, and registers a handler for each task of Django.

A worker needs this module in TASK_MODULES, and DJANGO_SETTINGS_MODULE. It imports `tasks.py` of each installed app, so
that handlers there are registered, too. Tasks in other modules are registered when these are imported.
"""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import django
from django.utils.module_loading import autodiscover_modules
from pydantic import Field

django.setup()

from firmq import task  # noqa: E402
from firmq.django import backend, connections, running  # noqa: E402, F401  # hooks of all handlers
from firmq.django.call import Call, options_of  # noqa: E402
from firmq.django.framework import InvalidTask, InvalidTaskBackend, Task  # noqa: E402
from firmq.worker.handlers.registry import NAME, REGISTRY  # noqa: E402

_VALUES = {"int": 1, "float": 0.5, "str": "some text", "bool": True, "list": [], "dict": {}}
_PERMANENT = (TypeError, InvalidTask, InvalidTaskBackend)


def register(found: Task[..., Any]) -> None:
    """Registers the handler of a task, once for each function."""
    if found.module_path in REGISTRY.handlers or not NAME.fullmatch(found.module_path):
        return
    options = options_of(found)
    options = {**options, "give_up_on": [*_PERMANENT, *options.get("give_up_on", ())]}

    def run_task(data: Call) -> Any:
        return running.run(found, data)

    async def run_async_task(data: Call) -> Any:
        return await running.run_async(found, data)

    run = run_async_task if inspect.iscoroutinefunction(found.func) else run_task
    run.__doc__ = found.func.__doc__
    run.__annotations__["data"] = Annotated[Call, Field(examples=[{"kwargs": _example(found)}])]
    task(found.module_path, **options)(run)


def _example(found: Task[..., Any]) -> dict[str, Any]:
    """Returns values for the arguments that a function needs."""
    parameters = list(inspect.signature(found.func).parameters.values())[found.takes_context :]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = (each for each in parameters if each.kind in named and each.default is each.empty)
    return {each.name: _VALUES.get(getattr(each.annotation, "__name__", each.annotation)) for each in needed}


autodiscover_modules("tasks")
backend.on_task = register
for module in list(sys.modules.values()):
    for each in list((getattr(module, "__dict__", None) or {}).values()):  # None blocks an import
        if issubclass(type(each), Task):  # isinstance would wake lazy objects
            register(each)
