"""Bulk actions: many tasks are cancelled, run, moved, retried, deleted or restored at a rate."""
