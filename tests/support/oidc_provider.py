"""A real OpenID Connect provider: Django OAuth Toolkit, as a program of its own with one client and two people.

`python -m tests.support.oidc_provider PORT FOLDER REDIRECT [HOST TLS]`. Everyone has the password of `PASSWORD`. As
the host of a container it serves HTTPS, and writes its certificate into the folder TLS.
"""

from __future__ import annotations

import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

CLIENT, SECRET, PASSWORD = "dashboard", "the secret of the dashboard", "correct horse"
GROUPS = {"ann": ["queue-admins", "staff"], "eve": ["staff"]}


def main(port: int, folder: Path, redirect: str, host: str = "127.0.0.1", tls: str = "") -> None:
    _configure(f"{'https' if tls else 'http'}://{host}:{port}/o", host, folder)
    _fill(redirect)
    from django.core.wsgi import get_wsgi_application

    class Quiet(WSGIRequestHandler):
        def log_message(self, *about: Any) -> None:
            pass

    server = make_server("0.0.0.0" if tls else host, port, get_wsgi_application(), handler_class=Quiet)
    if tls:
        server.socket = _certified(host, folder, Path(tls)).wrap_socket(server.socket, server_side=True)
    server.serve_forever()


def _certified(host: str, folder: Path, public: Path) -> ssl.SSLContext:
    """A context with a new certificate for a host, which is written into the public folder too."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(key.private_bytes(*form) + certificate)
    (public / "certificate.pem").write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context


def _configure(issuer: str, host: str, folder: Path) -> None:
    import django
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from django.conf import settings

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    settings.configure(
        SECRET_KEY="a key of this test",
        ALLOWED_HOSTS=[host],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "provider.sqlite")}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        LOGIN_URL="/login",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        USE_TZ=True,
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": key.private_bytes(*form).decode(),
            "OIDC_RP_INITIATED_LOGOUT_ENABLED": True,
            "OIDC_ISS_ENDPOINT": issuer,
            "OAUTH2_VALIDATOR_CLASS": "tests.support.oidc_provider_claims.Validator",
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "OpenID Connect", "profile": "profile", "email": "email"},
        },
    )
    django.setup()


def _fill(redirect: str) -> None:
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from oauth2_provider.models import Application

    call_command("migrate", verbosity=0)
    for name in GROUPS:
        User.objects.create_user(name, f"{name}@example.com", PASSWORD)
    Application.objects.create(
        client_id=CLIENT,
        client_secret=SECRET,
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE,
        redirect_uris=redirect,
        post_logout_redirect_uris=redirect.replace("/oidc/callback", ""),
        algorithm=Application.RS256_ALGORITHM,
        skip_authorization=True,
    )


def _urls() -> list[Any]:
    from django.contrib.auth import authenticate, login
    from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
    from django.urls import include, path

    def sign_in(request: HttpRequest) -> HttpResponse:
        found = authenticate(request, username=request.GET["username"], password=request.GET["password"])
        if found is None:
            return HttpResponse(status=401)
        login(request, found)
        return HttpResponseRedirect(request.GET["next"])

    return [path("login", sign_in), path("o/", include("oauth2_provider.urls", namespace="oauth2_provider"))]


def __getattr__(name: str) -> Any:
    if name == "urlpatterns":  # once Django is configured
        return _urls()
    raise AttributeError(name)


if __name__ == "__main__":
    sys.modules["tests.support.oidc_provider"] = sys.modules["__main__"]
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
