"""Runs the whole product on one machine: `firmq dev`. Containers have their own supervisors."""
