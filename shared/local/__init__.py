"""A Redis server with its data on disk, for `firmq dev` and tests."""
