"""The HTTP side: endpoints, errors, middleware, the description of the API, and the server."""
