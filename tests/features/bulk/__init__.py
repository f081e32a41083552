"""Bulk actions: their pages, endpoints, job and scripts."""
