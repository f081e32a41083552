"""Sign-in at an identity provider, and the page of personal API keys."""
