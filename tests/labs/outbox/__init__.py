"""The laboratory of the outbox: everything around it is killed, and each committed row must be one task."""
