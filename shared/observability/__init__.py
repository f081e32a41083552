"""Logging and tracing of all parts."""
