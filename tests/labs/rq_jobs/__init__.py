"""A laboratory: the workers of RQ programs and their Redis are killed while jobs run."""
