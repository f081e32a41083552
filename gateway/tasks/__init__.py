"""From the body of a request to tasks that are stored."""
