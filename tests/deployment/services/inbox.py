"""Takes alerts as a chat and a mail server do, and shows what came: POST /hook, SMTP on 1025, GET /received."""

from __future__ import annotations

import email
import json
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

chats: list[str] = []
mails: list[str] = []


class Mailbox:
    """Keeps the text of each mail."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd's name
        mails.append(email.message_from_bytes(envelope.content, policy=default).get_content())
        return "250 taken"


class Chat(BaseHTTPRequestHandler):
    """Keeps the text of each message of a chat."""

    def do_POST(self) -> None:
        chats.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self._answer(b"ok")

    def do_GET(self) -> None:
        self._answer(json.dumps({"chats": chats, "mails": mails}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: object) -> None:
        pass


if __name__ == "__main__":
    Controller(Mailbox(), hostname="0.0.0.0", port=1025).start()
    ThreadingHTTPServer(("0.0.0.0", 8025), Chat).serve_forever()
