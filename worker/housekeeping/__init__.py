"""Housekeeping: regular work that no worker does, one file per job."""
