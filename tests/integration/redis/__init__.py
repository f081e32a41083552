"""Redis behind sentinels, behind TLS, behind an ACL, in trouble, and with data of another version."""
