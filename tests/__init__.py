"""The tests, by how much of the product they need: unit, integration, acceptance."""
