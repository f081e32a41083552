"""Permitted destinations of webhooks and of tasks of the type `http`."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import HostsAndNetworks, Names, Ports
from firmq.shared.domain.egress_policy import EgressPolicy


class HttpCallSettings(Group):
    """Permitted destinations of webhooks and of tasks of the type `http`."""

    webhook_hosts: Names = at(
        "webhooks.hosts", (), "Hosts that webhooks may call; *.example.com matches subdomains; empty: any."
    )
    webhook_ports: Ports = at("webhooks.ports", (80, 443, 8080, 8443), "Ports that webhooks may call.")
    webhook_allow: HostsAndNetworks = at(
        "webhooks.allow",
        (),
        "Internal hosts and networks (receiver, 10.1.0.0/16) that webhooks may call, on any port.",
    )
    http_task_hosts: Names = at(
        "http_tasks.hosts",
        (),
        "Hosts that tasks of the type http may call; *.example.com matches subdomains, * any public host. Empty: there "
        "is no such type.",
    )
    http_task_ports: Ports = at(
        "http_tasks.ports", (80, 443, 8080, 8443), "Ports that tasks of the type http may call."
    )
    http_task_allow: HostsAndNetworks = at(
        "http_tasks.allow",
        (),
        "Internal hosts and networks (billing, 10.1.0.0/16) that tasks of the type http may call, on any port, if "
        "HTTP_TASK_HOSTS has the host.",
    )

    def egress_policy(self) -> EgressPolicy:
        """Returns the policy for the URLs of webhooks."""
        return EgressPolicy.of(self.webhook_hosts, self.webhook_ports, self.webhook_allow)

    def http_task_policy(self) -> EgressPolicy | None:
        """Returns the policy for tasks of the type `http`; None when they are off."""
        if not self.http_task_hosts:
            return None
        return EgressPolicy.of(self.http_task_hosts, self.http_task_ports, self.http_task_allow, "HTTP_TASK")
