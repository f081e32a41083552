"""The code that all parts share: a task's life cycle, its keys in Redis and the steps between its states."""
