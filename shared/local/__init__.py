"""The whole product on one machine, started by one command: `python -m shared.local`.

Read `__main__` for what is started, `embedded_redis` for where the data lives, and `supervisor` for how services
come up, stay up and go down. Nothing here runs in a container or a cluster; they have supervisors of their own.
"""
