"""The start on a single machine, with real processes and real signals."""
