"""The history: ended tasks and their statistics in a database, fed by the housekeeping job `history`."""
