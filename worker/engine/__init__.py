"""The worker's one thread: claims tasks, assigns them to executors, reports the outcomes of attempts."""
