"""A benchmark of task queues side by side: `python -m tests.bench`. README.md explains every measurement."""
