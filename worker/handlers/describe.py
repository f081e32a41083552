"""`python -m firmq.worker.handlers.describe MODULE...`: prints as JSON which task types modules register.

For `firmq dev`, which does not import them: an edited module can be imported again in a new process only.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Sequence

from firmq.worker.handlers import registry
from firmq.worker.handlers.registry import HandlerError


def main(modules: Sequence[str]) -> int:
    """Prints types with their schemas, and the places of the modules' packages. Returns the exit status."""
    built_in = set(registry.load([]).handlers)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            handlers = registry.load(modules).handlers
    except HandlerError as error:
        print(registry.explain(error), file=sys.stderr)
        return 2
    types = {name: handler.schema for name, handler in handlers.items() if name not in built_in}
    # Django imports this module where the app is installed.
    outbox = "firmq.django.outbox.apps" in sys.modules
    print(json.dumps({"types": types, "places": sorted(_places(modules)), "outbox": outbox}))
    return 0


def _places(modules: Iterable[str]) -> set[str]:
    """Returns the folders of the top-level packages, or the files of top-level modules."""
    tops = [sys.modules[name.partition(".")[0]] for name in modules]
    return {str(path) for top in tops for path in getattr(top, "__path__", [top.__file__]) if path}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
