"""The page at /docs.

It is rendered by our own template instead of Swagger UI, Redoc or RapiDoc: those are 0.9 to 1.5 MB of script and need
inline styles (some: inline code), which a strict content security policy forbids. This page is a few kilobytes, is
readable without scripts, and has a form to try each request with a small script.
"""
