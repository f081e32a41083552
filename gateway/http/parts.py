"""What the router of a system with several partitions tells an app about a request, in its environment."""

PART = "taskqueue.part"
"""0 or absent, or the place among the partitions that the request is sent to: it is counted, logged and audited by the
first of them only."""
POSITIONS = "taskqueue.positions"
"""A list that gets the cursor behind each item of the page."""
