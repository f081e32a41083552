"""Emails are encrypted where the server can do it, and a password is never sent in the clear."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from firmq.shared.config.settings import Settings, load
from firmq.shared.errors import SettingsError
from firmq.shared.features.alerts.standing import Standing
from firmq.shared.features.alerts.store import Message
from firmq.worker.features.alerts.channels import EmailChannel, SendingFailed, channels_of
from tests.integration.redis.tls import Certificates
from tests.support.mail_server import mail_server

LOGIN = ("firmq", "p@ss word")
ESCAPED = "p%40ss%20word"
NOT_ASCII = "pässword"
ALERT = Standing(name="FirmqPartMissing", level="danger", title="No worker", advice="Start one.", link="", since=1)


def message(count: int = 1) -> Message:
    return Message(id="1234", channel="email", fired=(ALERT,) * count, resolved=(), made_at=1)


def channel(url: str) -> EmailChannel:
    return EmailChannel(url, "firmq@example.com", ("ops@example.com",), "")


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    made = Certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca_file))
    return made


@pytest.mark.parametrize("implicit", [False, True])
def test_an_email_is_sent_encrypted_by_a_user(implicit: bool, certificates: Certificates) -> None:
    with mail_server(certificates.context(ask_clients=False), implicit=implicit, login=LOGIN) as server:
        scheme = "smtps" if implicit else "smtp"
        channel(f"{scheme}://firmq:{ESCAPED}@127.0.0.1:{server.port}").send(message())
    assert server.encrypted == [True]
    assert server.emails[0]["Message-ID"] == "<1234@example.com>"


def test_a_wrong_password_is_named_without_it(certificates: Certificates) -> None:
    with (
        mail_server(certificates.context(ask_clients=False), login=LOGIN) as server,
        pytest.raises(SendingFailed, match="SMTPAuthenticationError") as raised,
    ):
        channel(f"smtp://firmq:hunter2@127.0.0.1:{server.port}").send(message())
    assert "hunter2" not in str(raised.value)


def test_a_password_is_not_sent_in_the_clear() -> None:
    with mail_server(login=LOGIN) as server, pytest.raises(SendingFailed, match="STARTTLS"):
        channel(f"smtp://firmq:{ESCAPED}@127.0.0.1:{server.port}").send(message())


def test_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    with (
        mail_server(Certificates(tmp_path).context(ask_clients=False)) as server,
        pytest.raises(SendingFailed, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        channel(f"smtp://127.0.0.1:{server.port}").send(message())


def test_a_flood_is_one_email_of_bounded_length() -> None:
    with mail_server() as server:
        channel(f"smtp://127.0.0.1:{server.port}").send(message(500))
    [email] = server.emails
    assert email["Subject"] == "[firmq] No worker and 499 more"
    assert email.get_content().count("DANGER") == 20
    assert "… and 480 more" in email.get_content()


def test_a_password_that_smtp_cannot_send_is_a_failure_of_its_channel(certificates: Certificates) -> None:
    with (
        mail_server(certificates.context(ask_clients=False), login=LOGIN) as server,
        pytest.raises(SendingFailed, match="UnicodeEncodeError") as raised,
    ):
        channel(f"smtp://firmq:{quote(NOT_ASCII)}@127.0.0.1:{server.port}").send(message())
    assert NOT_ASCII not in str(raised.value)


def test_without_settings_there_is_no_channel() -> None:
    assert channels_of(Settings()) == []


@pytest.mark.parametrize(
    ("environment", "mistake"),
    [
        ({"ALERT_EMAIL_TO": "a@example.com"}, "SMTP_URL"),
        ({"SMTP_URL": "smtp://mail"}, "ALERT_EMAIL_TO"),
        ({"SMTP_URL": "mail.example.com:25"}, "smtp://user:secret@host:587"),
        ({"ALERT_WEBHOOK_URL": "http://169.254.169.254/hook"}, "not a public address"),
        ({"ALERT_WEBHOOK_URL": "https://hooks.example.com/hush", "WEBHOOK_HOSTS": "other.example"}, "WEBHOOK_HOSTS"),
        ({"ALERT_QUIET_HOURS": "at night"}, "22:00-07:00"),
    ],
)
def test_mistakes_are_named_at_the_start(environment: dict[str, str], mistake: str) -> None:
    with pytest.raises(SettingsError, match=mistake) as raised:
        load(environment)
    assert "hush" not in str(raised.value)
