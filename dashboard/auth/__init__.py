"""Who may sign in, what their sessions are, and how guessing passwords is slowed down."""
