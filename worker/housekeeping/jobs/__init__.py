"""What housekeeping does, one file for each job."""
