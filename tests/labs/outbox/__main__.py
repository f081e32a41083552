"""`python -m tests.labs.outbox`: kills what is around an outbox; status 1 when a row is not exactly one task."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.labs.outbox.laboratory import Laboratory


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.labs.outbox", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="processes to kill (default: 1000)")
    parser.add_argument("--seed", type=int, default=None, help="of the choice of what is killed")
    parser.add_argument("--database", default="", help="a URL of SQLAlchemy (default: SQLite); its tables are dropped")
    parser.add_argument("--without-receipts", action="store_true", help="plant a bug that has to be found")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # everything that was started ends with us
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    random.seed(seed)
    with tempfile.TemporaryDirectory(prefix="outbox-") as name:
        laboratory = Laboratory(Path(name), options.database, without_receipts=options.without_receipts)
        findings = laboratory.run(options.kills)
    print(f"seed {seed}: {findings}")
    return 0 if findings.well else 1


if __name__ == "__main__":
    sys.exit(main())
