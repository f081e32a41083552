"""`firmq`: the command-line interface of the client, for terminals and scripts."""
