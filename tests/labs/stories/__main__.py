"""`python -m tests.labs.stories`: plays the stories in a browser; status 1 when one takes too many clicks."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.labs.stories.laboratory import run
from tests.labs.stories.stories import documented, table


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.stories", description=__doc__)
    parser.add_argument("--tasks", type=int, default=40_000, help="tasks of the shop (default: 40,000)")
    parser.add_argument("--dead-letters", type=int, default=540, help="dead letters among them (default: 540)")
    parser.add_argument("--shots", type=Path, help="a folder for a picture of each goal")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    with tempfile.TemporaryDirectory(prefix="stories-") as name:
        player = run(Path(name), options.tasks, options.dead_letters, options.shots)
    print(table(player.goals))
    if player.made != documented():
        print(f"the documentation tells other clicks: {documented()}, not {player.made}")
        return 1
    return 0 if all(each.well for each in player.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
