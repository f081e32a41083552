"""Accounts of a company: sign-in at its identity provider, and API keys that users make for themselves."""
