"""A laboratory: RQ's own tests, with our worker class in place of RQ's."""
