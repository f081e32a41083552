"""`python -m worker.housekeeping`: runs the housekeeping jobs until SIGTERM or Ctrl-C."""

from worker.housekeeping.main import main

if __name__ == "__main__":
    raise SystemExit(main())
