"""The commands for developers add nothing to tables of other tests."""
