"""Requests with personal API keys."""
