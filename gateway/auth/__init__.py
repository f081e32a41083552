"""Who is asking, and what for: API keys, scopes and rates."""
