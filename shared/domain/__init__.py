"""The rules of tasks, schedules and retries: pure functions and values that know neither Redis nor HTTP."""
