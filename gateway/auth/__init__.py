"""Authentication by API key, with scopes and rates."""
