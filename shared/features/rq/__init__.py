"""Jobs of RQ programs: what all parts know of them."""
