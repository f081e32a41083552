"""Runs the whole product on one machine: `python -m shared.local`. Containers have their own supervisors."""
