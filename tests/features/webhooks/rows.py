"""What webhooks add to tables of other tests: `tests.support.features.rows` finds it by its name."""
