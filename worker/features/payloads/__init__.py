"""Large payloads: data and results that are kept in a folder or a bucket."""
