"""The project: settings, addresses and the model of an order."""
