"""A Django project, which is its only app, for tests of `firmq.django`."""
