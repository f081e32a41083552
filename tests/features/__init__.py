"""The tests of features: a folder for each, which is deleted with it."""
