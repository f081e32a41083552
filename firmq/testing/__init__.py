"""Fixtures for the tests of users of the package."""
