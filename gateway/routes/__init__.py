"""The endpoints, one class for each part of the API; `app.py` hands each what it needs."""
