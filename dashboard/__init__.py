"""The dashboard: everything on one page, any task found, dead letters emptied. Started by `python -m dashboard`."""
