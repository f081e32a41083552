"""Writes the templates of the Helm chart from k8s/deployment.yaml: `python -m tools.helm_chart`.

`--check` compares only. The objects are those of the manifests; what a value may change is listed here. Chart.yaml,
values.yaml and what only a chart has (`_helpers.tpl`, `NOTES.txt`, `external-redis.yaml`) are written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
ROOT = Path(__file__).parent.parent
SOURCE, CHART = ROOT / "k8s" / "deployment.yaml", ROOT / "k8s" / "chart"
HEADER = "{{- /* Made by `python -m tools.helm_chart` of k8s/deployment.yaml: change that. */ -}}\n"
OURS = ("gateway", "worker", "housekeeper", "dashboard")
OPTIONAL = ("redis", "prometheus", "jaeger", "credentials")
BALANCED = "-load-balancer"
_HASH = re.compile(r"-[0-9a-z]{10}$")
_MARK = re.compile(r"^( *)(- )?(?:([\w.-]+): )?'?<<(\d+)>>'?$", re.MULTILINE)


class Template:
    """A manifest in which expressions stand for what a value decides."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.kind = str(manifest["kind"])
        self.name = (
            _HASH.sub("", manifest["metadata"]["name"]) if self.kind == "ConfigMap" else manifest["metadata"]["name"]
        )
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """Returns what stands for a text of the template until the manifest is written."""
        self.texts.append(text)
        return f"<<{len(self.texts) - 1}>>"

    def value(self, path: str) -> str:
        """Marks a scalar."""
        return self.mark("{{ .Values.PATH }}".replace("PATH", path))

    def block(self, path: str) -> str:
        """Marks a mapping or list."""
        return self.mark("{{- toYaml .Values.PATH | nindent INDENT }}".replace("PATH", path))

    def optional(self, path: str, otherwise: Any = None) -> str:
        """Marks a field that is left out, or is as in the manifests, while its value is empty."""
        text = "{{- with .Values.PATH }}\nKEY:{{- toYaml . | nindent INDENT }}\n".replace("PATH", path)
        if otherwise:
            text += "{{- else }}\n" + yaml.safe_dump({"KEY": otherwise})
        return self.mark(text + "{{- end }}")

    def number(self, path: str) -> str:
        """Marks a number that is left out while it is null; 0 is one."""
        return self.mark(
            '{{- if not (kindIs "invalid" .Values.PATH) }}\nKEY: {{ .Values.PATH }}\n{{- end }}'.replace("PATH", path)
        )

    def write(self) -> str:
        """Returns the text of the template."""
        text = yaml.safe_dump(self.manifest, sort_keys=True, width=1000)
        return self._condition(_MARK.sub(self._expand, text))

    def _expand(self, found: re.Match[str]) -> str:
        indent, dash, key, number = found.groups()
        depth = len(indent) + (2 + len(dash or "") if key else 0)
        text = self.texts[int(number)].replace("INDENT", str(depth)).replace("KEY", key or "")
        if not key or "\n" in text:  # lines of their own
            return "\n".join(line if line.startswith("{{-") else indent + line for line in text.splitlines())
        return f"{indent}{dash or ''}{key}:{'' if text.startswith('{{-') else ' '}{text}"

    def _condition(self, text: str) -> str:
        wanted = [f".Values.{self.name}.enabled"] if self.name in OPTIONAL else []
        if self.name.endswith(BALANCED):
            wanted.append(".Values.loadBalancers.enabled")
        if self.kind == "NetworkPolicy":
            wanted.append(".Values.networkPolicies.enabled")
        elif self.kind == "HorizontalPodAutoscaler":
            wanted.append(f".Values.{self.name}.autoscaling.enabled")
        elif self.kind == "PriorityClass":
            wanted = [".Values.redis.enabled", ".Values.redis.priorityClass.create"]
        if not wanted:
            return text
        condition = wanted[0] if len(wanted) == 1 else f"and {' '.join(wanted)}"
        return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def templates(manifests: list[Manifest]) -> dict[str, str]:
    """Returns the files below `templates/` and `files/` by their path."""
    files: dict[str, str] = {}
    for manifest in manifests:
        if manifest["kind"] == "Namespace":  # Helm makes it
            continue
        template = Template(manifest)
        files |= dict(_configuration(template))
        _parameterize(template)
        home = (
            "network-policies"
            if template.name in ("default-deny", "dns")
            else template.name.removeprefix("task-queue-").removesuffix(BALANCED)
        )
        path = f"templates/{home}.yaml"
        before = files[path] + "---\n" if path in files else HEADER
        files[path] = before + template.write()
    return files


def _configuration(template: Template) -> Iterator[tuple[str, str]]:
    """Moves the configuration of a service into files, as it may hold what looks like a template."""
    if template.kind == "ConfigMap" and template.name != "settings":
        for name, text in template.manifest["data"].items():
            yield f"files/{template.name}/{name}", text


def _parameterize(template: Template) -> None:
    metadata = template.manifest["metadata"]
    if "namespace" in metadata:
        metadata["namespace"] = template.mark("{{ .Release.Namespace }}")
    for subject in template.manifest.get("subjects", []):
        subject["namespace"] = template.mark("{{ .Release.Namespace }}")
    change = CHANGES.get(template.kind)
    if change:
        change(template)


def _config_map(template: Template) -> None:
    template.manifest["metadata"]["name"] = template.mark(_generated(template.name))
    template.manifest["data"] = template.mark(
        '{{- include "firmq.data.NAME" . | nindent INDENT }}'.replace("NAME", template.name)
    )


def _generated(name: str) -> str:
    """Returns the name of a ConfigMap, which changes with its content and so restarts the pods."""
    return '{{ include "firmq.name" (list . "NAME") }}'.replace("NAME", name)


def _priority_class(template: Template) -> None:
    template.manifest["metadata"]["name"] = template.value("redis.priorityClass.name")


def _autoscaler(template: Template) -> None:
    spec = template.manifest["spec"]
    for field in ("minReplicas", "maxReplicas"):
        spec[field] = template.value(f"{template.name}.autoscaling.{field}")
    spec["metrics"][0]["resource"]["target"]["averageValue"] = template.value(f"{template.name}.autoscaling.averageCpu")


def _workload(template: Template) -> None:
    name, spec = template.name, template.manifest["spec"]
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    container["resources"] = template.block(f"{name}.resources")
    container["image"] = template.mark(
        "{{ .Values.PATH.repository }}:{{ .Values.PATH.tag }}".replace("PATH", _image(name))
    )
    container["imagePullPolicy"] = template.value("imagePullPolicy")
    for field in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        pod[field] = template.optional(field, pod.get(field))
    if "terminationGracePeriodSeconds" in pod:
        pod["terminationGracePeriodSeconds"] = template.value(f"{name}.terminationGracePeriodSeconds")
    if "priorityClassName" in pod:
        pod["priorityClassName"] = template.value("redis.priorityClass.name")
    _volumes(template, spec)
    _replicas(template, spec)
    if name in OURS:
        _part(template, pod, container)
    elif name == "redis":
        _secret(template, container["env"])
    elif name == "credentials":
        container["args"] = [template.mark("- {{ .Values.secret }}")]


def _volumes(template: Template, spec: Manifest) -> None:
    name = template.name
    for claim in spec.get("volumeClaimTemplates", []):
        claim["spec"]["resources"]["requests"]["storage"] = template.value(f"{name}.storage.size")
        claim["spec"]["storageClassName"] = template.optional(f"{name}.storage.className")
    for volume in spec["template"]["spec"].get("volumes", []):
        if "configMap" in volume:
            volume["configMap"]["name"] = template.mark(_generated(name))


def _image(name: str) -> str:
    return "image" if name in (*OURS, "credentials") else f"{name}.image"


def _replicas(template: Template, spec: Manifest) -> None:
    """Without a number, a part that is scaled by others keeps the number that it has."""
    if template.name in OURS:
        spec["replicas"] = template.number(f"{template.name}.replicas")


def _part(template: Template, pod: Manifest, container: Manifest) -> None:
    """The parts of the product: settings by value, secrets by name, Redis of the chart or another."""
    container["envFrom"][0]["configMapRef"]["name"] = template.mark(_generated("settings"))
    referring = [each for each in container["env"] if "valueFrom" in each and each["name"] != "REDIS_PASSWORD"]
    container["env"] = [
        template.mark('{{- include "firmq.env" (list . "NAME") | nindent INDENT }}'.replace("NAME", template.name)),
        template.mark('{{- include "firmq.redis" . | nindent INDENT }}'),
        *referring,
    ]
    _secret(template, referring)
    for volume in pod["volumes"]:
        if "secret" in volume:
            volume["secret"]["secretName"] = template.value("secret")


def _secret(template: Template, variables: list[Manifest]) -> None:
    for variable in variables:
        if "secretKeyRef" in variable.get("valueFrom", {}):
            variable["valueFrom"]["secretKeyRef"]["name"] = template.value("secret")


def _service(template: Template) -> None:
    if template.name.endswith(BALANCED):
        template.manifest["metadata"]["annotations"] = template.block("loadBalancers.annotations")
        template.manifest["spec"]["loadBalancerSourceRanges"] = template.block("loadBalancers.sourceRanges")


def _network_policy(template: Template) -> None:
    if template.name.endswith(BALANCED):
        [rule] = template.manifest["spec"]["ingress"]
        text = "{{- range .Values.loadBalancers.sourceRanges }}\n- ipBlock:\n    cidr: {{ . }}\n{{- end }}"
        rule["from"] = [template.mark(text)]


def _role(template: Template) -> None:
    for rule in template.manifest["rules"]:
        if "resourceNames" in rule:
            rule["resourceNames"] = [template.mark("- {{ .Values.secret }}")]


CHANGES: dict[str, Callable[[Template], None]] = {
    "ConfigMap": _config_map,
    "PriorityClass": _priority_class,
    "HorizontalPodAutoscaler": _autoscaler,
    "Deployment": _workload,
    "StatefulSet": _workload,
    "Job": _workload,
    "Service": _service,
    "NetworkPolicy": _network_policy,
    "Role": _role,
}
"""What a value may change, by kind of object."""


def main(arguments: list[str]) -> int:
    """Writes the chart, or with --check compares it. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.helm_chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args(arguments).check
    files = templates(list(yaml.safe_load_all(SOURCE.read_text())))
    stale = {name for name, text in files.items() if not (CHART / name).exists() or (CHART / name).read_text() != text}
    if check:
        for name in sorted(stale):
            print(f"k8s/chart/{name} is not what k8s/deployment.yaml says: run python -m tools.helm_chart")
        return bool(stale)
    for name in stale:
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
