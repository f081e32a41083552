"""Examples, each in a folder with a README.md."""
