"""The doctor examines a running system and reports required changes; it only reads."""
