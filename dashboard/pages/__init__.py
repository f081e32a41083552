"""One file a page: its addresses, and what its template is given."""
