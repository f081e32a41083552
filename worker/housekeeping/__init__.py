"""Housekeeping: what must happen although no worker does it, one file per job."""
