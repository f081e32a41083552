"""The dashboard: web pages that show the whole system and act on tasks. Started by `firmq dashboard`."""
