"""`python -m firmq.shared.http.healthcheck PORT...`: checks, without curl, whether a container's part is ready.

Requests the given ports that have a listener, and all of those must be ready, so one list of ports fits an image that
has every part. It runs every few seconds in every container, so it imports next to nothing.
"""

from __future__ import annotations

import socket
import sys

PATIENCE = 4.0
"""Time limit of a response, in seconds; the containers' own limit is five."""
ASK = b"GET /health/ready HTTP/1.0\r\nHost: localhost\r\n\r\n"


def status(port: int, host: str = "127.0.0.1") -> str | None:
    """Returns the status line of the readiness probe; None when the port has no listener."""
    try:
        connection = socket.create_connection((host, port), PATIENCE)
    except ConnectionRefusedError:
        return None
    with connection:
        connection.sendall(ASK)
        with connection.makefile("rb") as answer:
            return answer.readline(200).decode("latin-1").strip()


def main(ports: list[str]) -> int:
    """Prints the state of each port. Returns 0 when every listening part is ready, else 1."""
    answers = {port: _ask(int(port)) for port in ports}
    replies = {port: answer for port, answer in answers.items() if answer is not None}
    for port, answer in replies.items():
        print(f"port {port}: {answer}")
    if not replies:
        print(f"no listener on {', '.join(ports)}")
    return 0 if replies and all(" 200" in answer for answer in replies.values()) else 1


def _ask(port: int) -> str | None:
    try:
        return status(port)
    except OSError as error:
        return f"no answer: {error}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
