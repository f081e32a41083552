"""Signals that processes of the product send each other."""

import signal

RELOAD = signal.SIGUSR2
"""Makes a worker load its handlers anew. SIGHUP would be the custom, but it is sent when a terminal closes, too."""
