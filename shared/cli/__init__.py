"""`taskqueue`, the command line: what the client can do, for people and for scripts."""
