"""The REST API: accepts tasks, shows them and acts on them. Started by `firmq gateway`."""
