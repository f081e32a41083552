"""Many waiting tasks in few processes: how long they take, and what one of them may do to the others."""
