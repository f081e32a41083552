"""`python -m tests.labs.bench`."""

import sys

from tests.labs.bench.cli import main

sys.exit(main())
