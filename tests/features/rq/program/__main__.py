"""The program: URL, and the version of RQ that its features may need."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.features.rq.program import FEATURES, Program


def main() -> None:
    program, names = Program(sys.argv[1]), [name for name, row in FEATURES.items() if row.since <= sys.argv[2]]

    def saw(name: str) -> object:
        try:
            return FEATURES[name].does(program)
        except Exception as error:  # the others are still of interest
            return f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(8) as pool:
        print(json.dumps(dict(zip(names, pool.map(saw, names), strict=True))))


if __name__ == "__main__":
    main()
