"""What the other packages of the shop share."""
