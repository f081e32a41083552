"""Two versions of the same handlers, as before and after an update: `ship` gains a parameter, one goes, one comes."""
