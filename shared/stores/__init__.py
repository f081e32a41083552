"""Stores: one module for each kind of data in Redis; each owns its reads and writes."""
