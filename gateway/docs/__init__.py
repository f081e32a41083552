"""The page at /docs.

Made by our own template instead of Swagger UI, Redoc or RapiDoc: those are 0.9 to 1.5 MB of script and need styles
(some: code) inside the page, which a strict content security policy forbids. This one is a few kilobytes, can be read
without any script, and every request can be tried out with one.
"""
