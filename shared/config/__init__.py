"""What an operator sets: environment variables, the YAML file, and what their values may look like."""
