"""One file per page: its routes, the values for its template, and its changes.

The app registers the `blueprint` of each module in this folder.
"""
