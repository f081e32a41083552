"""Sets Django up in an executor, and registers the handlers that run Django's tasks.

A worker needs this module in TASK_MODULES, and DJANGO_SETTINGS_MODULE. It imports `tasks.py` of each installed app, so
that handlers there are registered, too.
"""

from __future__ import annotations

from typing import Any

import django
from django.utils.module_loading import autodiscover_modules

django.setup()

from taskqueue import task  # noqa: E402
from taskqueue.django import connections, running  # noqa: E402, F401  # hooks of all handlers
from taskqueue.django.call import ASYNC_TYPE, TYPE, Call  # noqa: E402


@task(TYPE, give_up_on=[TypeError])
def run_task(data: Call) -> Any:
    """Runs a task of Django whose function is a plain one."""
    return running.run(data)


@task(ASYNC_TYPE, give_up_on=[TypeError])
async def run_async_task(data: Call) -> Any:
    """Runs a task of Django whose function is a coroutine function."""
    return await running.run_async(data)


autodiscover_modules("tasks")
