"""Access to Redis: connections, key names, atomic scripts, and the treatment of corrupt data."""
