"""Server-Sent Events for changes of tasks and batches."""
