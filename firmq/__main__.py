"""The command `firmq`: starts a part, or runs a command of the CLI."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from firmq.shared.cli import parts


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. A part runs in this process, without the client and its CLI."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # None if a program starts this one without it
    if words[:1] and words[0] in parts.COMMANDS:
        return parts.main(words)
    from firmq.shared.cli.main import main as run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
