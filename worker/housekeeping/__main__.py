"""`firmq housekeeper`: runs the housekeeping jobs until SIGTERM or Ctrl-C."""

from firmq.worker.housekeeping.main import main

if __name__ == "__main__":
    raise SystemExit(main())
