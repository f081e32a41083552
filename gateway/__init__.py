"""The REST API: takes tasks in, shows them, and lets people act on them. Started by `python -m gateway`."""
