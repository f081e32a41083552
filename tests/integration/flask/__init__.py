"""The Flask extension, in a process and on real workers."""
