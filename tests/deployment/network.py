"""Who may talk to whom, as NetworkPolicies have it: an edge needs both ends to agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.deployment.manifests import NAME, Manifest

Edge = tuple[str, str, int]
OUTSIDE = "outside"
CLIENTS = "clients"
DNS = "dns"


def edges(policies: Iterable[Manifest], pods: Sequence[str]) -> set[Edge]:
    """The connections that are let through: from, to, port. Who is outside of the namespace agrees to everything."""
    policies = list(policies)
    outgoing = set(_allowed(policies, pods, "Egress"))
    incoming = set(_allowed(policies, pods, "Ingress"))
    inside = {edge for edge in outgoing & incoming if edge[0] in pods and edge[1] in pods}
    return (
        inside | {edge for edge in outgoing if edge[1] not in pods} | {edge for edge in incoming if edge[0] not in pods}
    )


def isolated(policies: Iterable[Manifest], pods: Sequence[str], direction: str) -> set[str]:
    """The pods that a policy selects in this direction: everything that no policy allows them is refused."""
    return {
        pod
        for policy in policies
        if direction in policy["spec"]["policyTypes"]
        for pod in _selected(policy["spec"]["podSelector"], pods)
    }


def _allowed(policies: Iterable[Manifest], pods: Sequence[str], direction: str) -> Iterator[Edge]:
    rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    for policy in policies:
        for rule in policy["spec"].get(rules, []):
            for near in _selected(policy["spec"]["podSelector"], pods):
                for far in _peers(rule.get(peers), pods):
                    for port in rule["ports"]:
                        pair = (near, far) if direction == "Egress" else (far, near)
                        yield (*pair, port["port"])


def _peers(peers: Sequence[Mapping[str, Any]] | None, pods: Sequence[str]) -> Iterator[str]:
    if peers is None:
        yield OUTSIDE
    for peer in peers or ():
        space = peer.get("namespaceSelector", {}).get("matchLabels", {})
        if "ipBlock" in peer:
            yield OUTSIDE
        elif space.get("kubernetes.io/metadata.name") == "kube-system":
            yield DNS
        elif "task-queue/client" in space:
            yield CLIENTS
        elif "namespaceSelector" in peer:
            yield str(sorted(space.items()))
        else:
            yield from _selected(peer["podSelector"], pods)


def _selected(selector: Mapping[str, Any], pods: Sequence[str]) -> list[str]:
    """All for an empty selector; else the one that is named."""
    wanted = selector.get("matchLabels", {})
    assert wanted.keys() <= {NAME, "app.kubernetes.io/part-of"}, f"the tests cannot read {selector}"
    return [pod for pod in pods if wanted.get(NAME) in (None, pod)]
