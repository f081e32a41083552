"""`firmq dev` and `firmq run`."""
