"""An approval by a person, with reminders."""
