"""Jobs of RQ programs, run on this engine: `adopter.py` makes tasks of them, `handler.py` runs them in executors."""
