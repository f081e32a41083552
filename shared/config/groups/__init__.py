"""The settings in groups, each of one subject; `Settings` has all of them."""
