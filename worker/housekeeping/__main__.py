"""`taskqueue housekeeper`: runs the housekeeping jobs until SIGTERM or Ctrl-C."""

from taskqueue.worker.housekeeping.main import main

if __name__ == "__main__":
    raise SystemExit(main())
