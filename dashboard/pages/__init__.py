"""One file per page: its routes, and the values for its template."""
