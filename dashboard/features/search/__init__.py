"""What search adds to lists of tasks: breakdowns by content, and suggestions."""
