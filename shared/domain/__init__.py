"""Rules of tasks, schedules and retries: pure functions and values, independent of Redis and HTTP."""
