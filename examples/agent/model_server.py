"""A model that knows one trick, and streams it word by word: `python -m examples.agent.model_server [PORT]`."""

from __future__ import annotations

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE = 0.05
"""Seconds between two words."""


def reply(conversation: list[dict[str, str]]) -> str:
    """Returns what the model says: it calls its tool twice, and then answers with what that has found."""
    found = [each["text"] for each in conversation if each["role"] == "tool"]
    if not found:
        return "SEARCH capital of France\nSEARCH population of Paris"
    return " ".join(found)


class Model(BaseHTTPRequestHandler):
    """Answers a conversation with a line of JSON for each word."""

    def do_POST(self) -> None:
        conversation = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for word in re.findall(r"\S+\s*", reply(conversation)):
            self.wfile.write(f"{json.dumps(word)}\n".encode())
            self.wfile.flush()
            time.sleep(PAUSE)

    def log_message(self, *about: object) -> None:
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8199
    ThreadingHTTPServer(("127.0.0.1", port), Model).serve_forever()
