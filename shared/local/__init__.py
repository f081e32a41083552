"""Runs the whole product on one machine: `python -m shared.local`.

`__main__` lists the services, `embedded_redis` holds the data, and `supervisor` starts, restarts and stops services.
It is not used in containers or clusters, which have their own supervisors.
"""
