"""A laboratory: a real browser plays the three stories of docs/operate/dashboard.md, and counts its clicks."""
