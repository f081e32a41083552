"""Runs tests on the versions of Python beside that of `.venv`: `make test-pythons`."""

import sys

import nox

SUPPORTED = ("3.11", "3.12", "3.13")
CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
# The session of a version that is not installed is skipped, also in CI: the summary names it.
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"


@nox.session(python=[each for each in SUPPORTED if each != CURRENT])
def tests(session: nox.Session) -> None:
    """Runs pytest with the arguments after `--`."""
    session.install("--no-compile", "--editable", ".[dev]")
    session.run("pytest", *session.posargs, success_codes=[0, 5])  # 5: there are none
