"""`firmq worker`: runs tasks until SIGTERM or Ctrl-C; a second one stops at once."""

from firmq.worker.main import main

if __name__ == "__main__":
    raise SystemExit(main())
