"""Streams of events: what changes, sent to those who listen."""
