"""The worker's one thread: claims tasks, gives them to executors, reports how attempts ended."""
