"""RQ_KEY_PREFIX, which RQ reads when it is imported."""

from __future__ import annotations

import os
from importlib.metadata import version

from firmq.shared.config.settings import exit_with


def name_rq_keys(prefix: str) -> None:
    """Makes RQ's code, also in executors, use the keys of this system; exits when its environment names others."""
    wanted = f"{prefix}:rq" if prefix else "rq"
    if prefix and (installed := version("rq")).startswith("2."):
        exit_with(f"RQ {installed} has no RQ_KEY_PREFIX: jobs of RQ with KEY_PREFIX={prefix} need RQ 3.0")
    if (given := os.environ.setdefault("RQ_KEY_PREFIX", wanted)) == wanted:
        return
    name = given.removesuffix(":rq")
    advice = f"set KEY_PREFIX={name}" if name != given else f"set RQ_KEY_PREFIX={wanted} here and in the RQ programs"
    exit_with(f"RQ_KEY_PREFIX={given}: with KEY_PREFIX={prefix or '(none)'}, RQ's keys begin with {wanted}: {advice}")
