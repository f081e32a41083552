"""The doctor: what it finds, over HTTP."""
