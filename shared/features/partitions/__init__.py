"""Partitions: a system on several Redis servers, or on a cluster."""
