"""Addresses of the parts, and their permitted callers."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Names, Port, Seconds


class ListeningSettings(Group):
    """Addresses of the parts, and their permitted callers."""

    bind_host: str = at("bind_host", "127.0.0.1", "Address that every part listens on.")
    allow_anonymous: bool = at(
        "allow_anonymous", False, "Allows listening on addresses other than loopback without keys or users."
    )
    allowed_hosts: Names = at(
        "allowed_hosts",
        (),
        "Host names that gateway and dashboard accept in requests without a key or password, besides this machine's "
        "names, addresses, and names inside a network.",
    )
    api_keys: Names = at(
        "gateway.api_keys", (), "API keys of the REST API: lines of `firmq keys create`, separated by commas."
    )
    api_keys_file: str = at(
        "gateway.api_keys_file", "", "File with more API keys, one per line; reloaded when it changes."
    )
    gateway_port: Port = at("gateway.port", 8000, "Port of the REST API.")
    gateway_public_port: Port = at(
        "gateway.public_port", 0, "A further port of the REST API without /metrics, for a load balancer; 0: none."
    )
    gateway_processes: int = at(
        "gateway.processes", 0, "Processes of a gateway; 0: one per processor, at most four.", ge=0, le=64
    )
    dashboard_port: Port = at("dashboard.port", 5001, "Port of the dashboard.")
    worker_metrics_port: Port = at("worker.metrics_port", 9100, "Port of a worker's metrics and health; 0: any free.")
    housekeeper_metrics_port: Port = at(
        "housekeeper.metrics_port", 9101, "Port of a housekeeper's metrics and health; 0: any free."
    )
    keep_alive_timeout: Seconds = at(
        "keep_alive_timeout",
        75,
        "How long gateway and dashboard keep an idle connection; longer than the load balancer in front of them, which "
        "otherwise sends requests into connections that are being closed.",
        ge=1,
        le=3600,
    )
    shutdown_delay: Seconds = at(
        "shutdown_delay",
        0,
        "On SIGTERM: how long gateway and dashboard continue to serve while asking clients to reconnect, so that load "
        "balancers and kept-alive connections leave first.",
        le=300,
    )
