"""Creates the secret of the Kubernetes manifests with random entries; the Job `credentials` runs it."""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import ssl
import sys
from pathlib import Path

from werkzeug.security import generate_password_hash

from firmq.shared.stores.api_keys import Scope, new_key

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def main(name: str) -> None:
    """Creates the secret if there is none of this name. Exits with status 1 if the API server refuses."""
    status, text = _call("GET", name)
    if status == 404:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": random_entries()}
        # A role can be limited to a name in an address, which a POST lacks. An entry of another manager is a conflict.
        status, text = _call("PATCH", f"{name}?fieldManager=credentials-{secrets.token_hex(8)}", json.dumps(secret))
    if status not in (200, 201, 409):
        sys.exit(f"secret {name} not created: {status} {text}")
    print(f"secret {name} {'created' if status == 201 else 'exists and was not changed'}")


def _call(method: str, path: str, body: str | None = None) -> tuple[int, str]:
    """Sends a request about a secret of this namespace. Returns the status and the text of the answer."""
    namespace, token = ((ACCOUNT / each).read_text().strip() for each in ("namespace", "token"))
    trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13 sets it, and refuses the certificates of many clusters
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(host, port, context=trust, timeout=10)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/apply-patch+yaml"}
    connection.request(method, f"/api/v1/namespaces/{namespace}/secrets/{path}", body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def random_entries() -> dict[str, str]:
    """Returns the values for the parts, and in `dashboard-password` and `api-key` those for people, in base64."""
    password, (key, text) = secrets.token_urlsafe(18), new_key("default", [Scope.SUBMIT, Scope.READ])
    entries = {
        "redis-password": secrets.token_hex(32),
        "dashboard-password": password,
        "dashboard-users": f"admin:admin:{generate_password_hash(password)}",
        "api-key": text,
        "api-keys": f"{key.line}\n",
    }
    return {name: base64.b64encode(value.encode()).decode() for name, value in entries.items()}


if __name__ == "__main__":
    main(sys.argv[1])
