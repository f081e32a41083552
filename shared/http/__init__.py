"""What every HTTP server of the product shares: the loop that reads requests, ports, health and metrics."""
