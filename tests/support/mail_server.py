"""A mail server that keeps what it takes."""

from __future__ import annotations

import email
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.support.harness import free_port


@dataclass
class MailServer:
    """What has come so far; `refuses` makes it take nothing for now."""

    port: int
    emails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    refuses: bool = False

    def texts(self) -> list[str]:
        contents = ("\n".join(each.get_content().splitlines()) for each in self.emails)
        return [f"{each['Subject']}\n{text}\n" for each, text in zip(self.emails, contents, strict=True)]

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd's name
        if self.refuses:
            return "451 try again later"
        self.emails.append(email.message_from_bytes(envelope.content, policy=default))
        self.recipients.append(list(envelope.rcpt_tos))
        self.encrypted.append(server.transport.get_extra_info("ssl_object") is not None)
        return "250 taken"


@contextmanager
def mail_server(
    tls: ssl.SSLContext | None = None, *, implicit: bool = False, login: tuple[str, str] | None = None
) -> Iterator[MailServer]:
    """A server on this machine, with STARTTLS or with TLS from the start, and with one user if there is a login."""
    server = MailServer(free_port())

    def check(smtp: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        right = isinstance(given, LoginPassword) and (given.login.decode(), given.password.decode()) == login
        return AuthResult(success=right, handled=False)

    options: dict[str, Any] = {"authenticator": check, "auth_required": True} if login else {}
    if tls:
        options |= {"ssl_context": tls} if implicit else {"tls_context": tls, "require_starttls": True}
    if login and (implicit or not tls):
        options["auth_require_tls"] = False  # aiosmtpd knows of STARTTLS only
    controller = Controller(server, hostname="127.0.0.1", port=server.port, **options)
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
