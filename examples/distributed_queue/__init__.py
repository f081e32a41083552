"""A leader that enqueues a batch of executions, and workers that run them: see README.md."""
