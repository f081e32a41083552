"""Shared parts of all HTTP servers: the request loop, ports, health and metrics."""
