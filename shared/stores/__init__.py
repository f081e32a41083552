"""What is kept in Redis, one module for each kind of thing: each owns how it is read and written."""
