"""Why things are as they are: status of a task, alerts, timeline, graph of dependencies."""
