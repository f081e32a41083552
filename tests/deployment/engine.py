"""A Docker engine and the project on it, by the commands that people use: docker, docker compose, curl."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.harness import ROOT

PORTS = {"gateway": 8000, "dashboard": 5001, "prometheus": 9090, "jaeger": 16686, "loki": 3100, "inbox": 8025}
SIGN_IN = """\
jar=$(mktemp)
trap 'rm -f "$jar"' EXIT
follow() { curl -s -m 30 -L -b "$jar" -c "$jar" -k --resolve identity:8080:127.0.0.1 "$@"; }
start='http://127.0.0.1:5001/sign-in/oidc?next=/queues'
next=$(curl -s -m 15 -b "$jar" -c "$jar" -o /dev/null -w '%{redirect_url}' "$start")
next=${next#https://identity:8080}
login=(--data-urlencode "username=$1" --data-urlencode "password=$2" --data-urlencode "next=$next")
follow -G https://identity:8080/login "${login[@]}"
"""
"""Signs in as a browser does: from the dashboard to the identity provider and back, to the page of the queues."""


class CommandFailed(AssertionError):
    """A command ended with another status than 0."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from an address; status 0 when nothing did."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Engine:
    """Runs commands beside an engine: on this machine, or behind a prefix such as `ssh host`."""

    beside: Sequence[str] = ()
    project: str = "firmq-verify"
    files: Sequence[str] = ("docker-compose.yml",)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def compose_command(self) -> list[str]:
        """`docker compose` for this project; a password of the checkout's own .env stays out of it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        files = [part for file in self.files for part in ("-f", file)]
        return [
            *self.beside,
            "env",
            *variables,
            "docker",
            "compose",
            "--env-file",
            "/dev/null",
            "-p",
            self.project,
            *files,
        ]

    def compose(self, *arguments: str, seconds: float = 300, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run([*self.compose_command, *arguments], seconds, check)

    def docker(self, *arguments: str, seconds: float = 60, check: bool = True) -> str:
        return self._run([*self.beside, "docker", *arguments], seconds, check).stdout.strip()

    def make(self, target: str, **variables: str) -> None:
        """A target of the Makefile that works on the running project."""
        settings = [f"{name}={value}" for name, value in variables.items()]
        self._run(["make", "-s", target, f"COMPOSE={shlex.join(self.compose_command)}", *settings], 120)

    def containers(self, service: str = "") -> list[dict[str, Any]]:
        """What `docker inspect` knows of the project's containers, ended ones too."""
        filters = [f"label=com.docker.compose.project={self.project}"]
        if service:
            filters.append(f"label=com.docker.compose.service={service}")
        wanted = [part for each in filters for part in ("--filter", each)]
        ids = self.docker("ps", "-aq", *wanted).split()
        return json.loads(self.docker("inspect", *ids)) if ids else []

    def left(self, kind: str) -> list[str]:
        """Names of the networks or volumes that the project left behind."""
        wanted = f"label=com.docker.compose.project={self.project}"
        return self.docker(kind, "ls", "-q", "--filter", wanted).split()

    # --- HTTP through the published ports ---

    def call(self, method: str, service: str, path: str, body: object = None, **headers: str) -> Answer:
        """One request to a published port."""
        extra = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        command = ["curl", "-s", "-m", "15", "-X", method, "-w", "\n%{http_code}", *extra]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "--data-binary", "@-"]
        given = None if body is None else json.dumps(body)
        done = self._run([*self.beside, *command, self._url(service, path)], 30, False, given)
        text, _, status = done.stdout.rpartition("\n")
        return Answer(int(status or 0), text)

    def sign_in(self, name: str, password: str) -> str:
        """Signs someone in at the identity provider. Returns the page of the dashboard that they see then."""
        return self._run([*self.beside, "bash", "-uc", SIGN_IN, "-", name, password], 60, False).stdout

    def get(self, service: str, path: str) -> Any:
        answer = self.call("GET", service, path)
        assert answer.status == 200, f"GET {path}: {answer}"
        return answer.json

    def tasks(self, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Many tasks over one connection."""
        urls = "\n".join(f'url = "{self._url("gateway", f"/tasks/{each}")}"' for each in ids)
        text = self._run([*self.beside, "curl", "-s", "-K", "-"], 120, False, urls).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            task, end = decoder.raw_decode(text, at)
            yield task
            at = end + len(text[end:]) - len(text[end:].lstrip())

    def _url(self, service: str, path: str) -> str:
        return f"http://127.0.0.1:{PORTS[service]}{path}"

    def _run(
        self, command: list[str], seconds: float, check: bool = True, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        end = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=seconds, check=False, **end
        )
        if check and done.returncode != 0:
            shown = shlex.join(part for part in command if "PASSWORD" not in part)
            raise CommandFailed(f"{shown}\nended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done
