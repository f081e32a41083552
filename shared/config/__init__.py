"""Configuration: settings from environment variables and the YAML file, and the formats of their values."""
