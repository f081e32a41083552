"""The outbox: rows that programs write in transactions of their own become tasks, each exactly once."""
