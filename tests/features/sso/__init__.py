"""Sign-in at an identity provider, and personal API keys."""
