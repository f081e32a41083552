"""Jobs of RQ programs, run on this engine: `adopter.py` turns them into tasks, `handler.py` runs them in executors."""
