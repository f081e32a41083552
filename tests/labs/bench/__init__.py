"""A benchmark of task queues side by side: `python -m tests.labs.bench`. README.md explains every measurement."""
