"""The commands, settings and endpoints of the documents that the product comes from, as they are written there."""
