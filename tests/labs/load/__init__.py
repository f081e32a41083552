"""Steady load for long, and a flood: what grows, what slows down, what is lost."""
