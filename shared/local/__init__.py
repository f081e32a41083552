"""Runs the whole product on one machine: `python -m taskqueue.shared.local`. Containers have their own supervisors."""
