"""The way to Redis: connections, key names, atomic scripts, and what is done about data that cannot be read."""
