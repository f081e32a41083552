"""Several partitions under faults, and how much faster more of them are."""
