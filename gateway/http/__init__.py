"""The HTTP layer: endpoints, errors, middleware, OpenAPI document and server."""
