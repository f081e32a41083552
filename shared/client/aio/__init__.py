"""The client for asyncio, from which `python -m tools.unasync` generates the client for threads.

`connections.py` and `concurrency.py` are written by hand on both sides; everything else is written here only.
"""
