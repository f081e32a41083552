"""Runs one handler without a system: `firmq run`."""
