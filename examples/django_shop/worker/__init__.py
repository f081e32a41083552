"""The shop's background work."""
