"""The housekeeping jobs, one file each."""
