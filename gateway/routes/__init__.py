"""The endpoints, one class per part of the API; `app.py` passes each class its dependencies."""
