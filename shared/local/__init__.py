"""Runs the whole product on one machine: `taskqueue dev`. Containers have their own supervisors."""
