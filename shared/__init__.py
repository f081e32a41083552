"""The language that all parts share: a task's life, its keys in Redis and the steps between its states."""
