"""The features, each in a folder of its own; `firmq.shared.registry` lists them."""
