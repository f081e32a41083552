"""`python -m shared.cli`: runs the CLI where the command `taskqueue` is not installed."""

from __future__ import annotations

import sys

from shared.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
