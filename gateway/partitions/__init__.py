"""The gateway of a system with several partitions: one app for each, and the router in front of them."""
