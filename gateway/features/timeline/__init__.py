"""The timeline of an incident."""
