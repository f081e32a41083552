"""Signals that processes of the product send each other."""

import signal

RELOAD = signal.SIGUSR2
"""Makes a worker reload its handlers. SIGHUP would be the custom, but it is sent when a terminal closes, too."""
