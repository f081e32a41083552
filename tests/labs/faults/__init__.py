"""The fault laboratory: processes and Redis are killed, frozen, cut and flooded, and every promise is checked."""
