"""Fixtures for the tests of those who use the package."""
