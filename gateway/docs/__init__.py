"""The page at /docs: Swagger UI, which shows our OpenAPI document and sends requests from forms."""
