"""The Kubernetes manifests: what they promise, and that they agree with each other and with the code."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from firmq.dashboard import serve as dashboard_server
from firmq.gateway import serve as gateway_server
from firmq.shared.cli import cluster_secret
from firmq.shared.cli.parts import COMMANDS
from firmq.shared.config.settings import Settings, load
from tests.deployment.manifests import (
    CLUSTER_WIDE,
    K8S,
    NAME,
    NEWEST,
    OLDEST,
    OURS,
    SINGLE_FILE,
    Manifest,
    Workload,
    check_schemas,
    config_map,
    documents,
    of_kind,
    size,
    workloads,
    yaml_files,
)
from tests.deployment.network import CLIENTS, DNS, OUTSIDE, edges, isolated
from tests.deployment.rendering import normalised, render
from tests.support.documents import DOCUMENTS
from tests.support.harness import ROOT

K8S_README = (K8S / "README.md").read_text()
EVERYBODY = pytest.mark.parametrize("workload", workloads().values(), ids=list(workloads()))
JOB = Workload("credentials", of_kind("Job")["credentials"])
OUR_PARTS = pytest.mark.parametrize("workload", [workloads()[name] for name in OURS], ids=OURS)
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


# --- one file and its parts ---


def by_identity(manifests: list[Manifest] | tuple[Manifest, ...]) -> dict[tuple[str, str], Manifest]:
    return {(each["kind"], each["metadata"]["name"]): each for each in map(normalised, manifests)}


def test_the_single_file_is_what_its_parts_say() -> None:
    assert by_identity(documents()) == by_identity(render(K8S / "overlays" / "production"))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed; the test above does without")
def test_the_single_file_is_what_kubectl_makes_of_the_parts() -> None:
    made = kustomize(K8S / "overlays" / "production")
    assert SINGLE_FILE.read_text().partition("\n")[2] == made, "make manifests writes it anew"


def kustomize(folder: Path) -> str:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_base_is_used() -> None:
    used = by_identity(documents())
    for path in yaml_files(K8S / "base"):
        if path.name != "jaeger.yaml":  # Jaeger's own configuration
            assert by_identity(documents(path)).keys() <= used.keys(), path


def test_namespaces_come_first_so_that_one_apply_is_enough() -> None:
    assert [each["kind"] for each in documents()].index("Namespace") == 0
    for each in documents():
        assert (each["metadata"].get("namespace") == "task-queue") != (each["kind"] in CLUSTER_WIDE), each["metadata"]


# --- the schemas of Kubernetes ---


def test_every_manifest_keeps_to_the_schemas_of_kubernetes() -> None:
    check_schemas(documents())


def test_the_readme_names_the_versions_that_are_checked() -> None:
    assert f"Kubernetes {OLDEST} to {NEWEST}" in K8S_README


# --- every container ---


@EVERYBODY
def test_every_container_has_probes_that_wait_long_enough(workload: Workload) -> None:
    for name in PROBES:
        probe = workload.container[name]
        assert "httpGet" in probe or "exec" in probe, "an open port says nothing about who is behind it"
        assert probe["timeoutSeconds"] >= 2, name
    startup = workload.container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 30
    liveness = workload.container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 30, "it is killed for a hiccup"


@EVERYBODY
def test_every_container_says_what_it_needs_and_what_it_may_take(workload: Workload) -> None:
    resources = workload.container["resources"]
    for what in ("requests", "limits"):
        assert {"cpu", "memory"} <= resources[what].keys()
    assert size(resources["requests"]["memory"]) <= size(resources["limits"]["memory"])
    for volume in workload.pod["volumes"]:
        assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), f"{volume['name']} may fill the node"


@pytest.mark.parametrize("workload", [*workloads().values(), JOB], ids=[*workloads(), JOB.name])
def test_every_pod_is_restricted(workload: Workload) -> None:
    pod, own = workload.pod["securityContext"], workload.container["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 10000
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert not workload.pod.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"}
    assert not any("hostPath" in volume for volume in workload.pod["volumes"])


def test_the_namespace_refuses_pods_that_are_not_restricted() -> None:
    labels = of_kind("Namespace")["task-queue"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("workload", [*workloads().values(), JOB], ids=[*workloads(), JOB.name])
def test_only_prometheus_and_the_job_get_a_cluster_token(workload: Workload) -> None:
    assert workload.pod["automountServiceAccountToken"] is False
    account = of_kind("ServiceAccount")[workload.pod["serviceAccountName"]]
    assert account["metadata"]["name"] == workload.name
    assert account["automountServiceAccountToken"] is False
    tokens = [
        source["serviceAccountToken"]
        for volume in workload.pod["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    ]
    seconds = {"prometheus": [3600], "credentials": [600]}
    assert [token["expirationSeconds"] for token in tokens] == seconds.get(workload.name, [])


@pytest.mark.parametrize(
    ("account", "rule"),
    [
        ("prometheus", {"resources": ["pods"], "verbs": ["get", "list", "watch"]}),
        (
            "credentials",
            {"resources": ["secrets"], "resourceNames": ["task-queue"], "verbs": ["get", "create", "patch"]},
        ),
    ],
)
def test_prometheus_may_look_at_pods_and_the_job_may_touch_one_secret(account: str, rule: Manifest) -> None:
    assert not of_kind("ClusterRole")
    assert not of_kind("ClusterRoleBinding")
    roles, bindings = of_kind("Role"), of_kind("RoleBinding")
    assert roles.keys() == bindings.keys() == {"prometheus", "credentials"}
    assert roles[account]["rules"] == [{"apiGroups": [""], **rule}]
    assert bindings[account]["roleRef"]["name"] == account
    assert [(each["kind"], each["name"]) for each in bindings[account]["subjects"]] == [("ServiceAccount", account)]


@EVERYBODY
def test_services_do_not_set_settings(workload: Workload) -> None:
    """A service named `redis` would give every pod REDIS_PORT=tcp://10.0.0.1:6379."""
    assert workload.pod["enableServiceLinks"] is False


@EVERYBODY
def test_selectors_name_their_own_pods_only(workload: Workload) -> None:
    assert workload.manifest["spec"]["selector"] == {"matchLabels": {NAME: workload.name}}
    assert workload.template["metadata"]["labels"][NAME] == workload.name


@EVERYBODY
def test_images_are_named_with_their_version(workload: Workload) -> None:
    version = workload.container["image"].partition(":")[2]
    assert re.match(r"v?\d", version), workload.container["image"]


# --- secrets ---


SWITCHES = {"webhook-secrets"}
"""Keys of the secret that switch something on; without them it is off, and nothing is open that should not be."""


def test_no_secret_is_in_the_files_and_none_has_a_default() -> None:
    assert not of_kind("Secret")
    for name, workload in workloads().items():
        for variable in workload.container.get("env", []):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                assert reference["name"] == "task-queue"
                optional = reference["key"] in SWITCHES
                assert bool(reference.get("optional")) == optional, f"{name}: its {reference['key']}"
            elif re.search("(PASSWORD|SECRET|USERS|AUTH|KEYS?|TOKEN)$", variable["name"]):
                pytest.fail(f"{name}: {variable['name']} must come from a secret")


def test_the_secret_commands_say_how_their_environment_is_made() -> None:
    """`make setup` makes what `.venv/bin/...` needs, on a machine where nothing was started yet."""
    for text in (DOCUMENTS, K8S_README):
        command = re.search(r"```\n(?:(?!```).)*?kubectl create secret generic task-queue", text, re.DOTALL)
        assert command
        assert "\nmake setup " in command[0]
    assert re.search(r"^setup: \$\(VENV\)/\.run ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_doctor_asks_prometheus_from_where_it_is_let_through() -> None:
    assert load(workloads()["gateway"].environment()).prometheus_url == "http://prometheus:9090"
    assert [part for part in OURS if load(workloads()[part].environment()).prometheus_url] == ["gateway"]
    assert "kubectl exec -n task-queue deployment/gateway -- firmq doctor" in DOCUMENTS


def test_the_command_of_the_readme_creates_every_key_that_is_asked_for() -> None:
    for text in (DOCUMENTS, K8S_README):
        command = re.search(r"kubectl create secret generic task-queue --namespace.*?\n```", text, re.DOTALL)
        assert command
        assert set(re.findall(r"--from-(?:literal|file)=([\w-]+)", command[0])) == wanted_entries() - SWITCHES
    assert set(re.findall(r"--from-literal=([\w-]+)=", K8S_README)) >= SWITCHES


def wanted_entries() -> set[str]:
    return {
        variable["valueFrom"]["secretKeyRef"]["key"]
        for workload in workloads().values()
        for variable in workload.container.get("env", [])
        if "secretKeyRef" in variable.get("valueFrom", {})
    } | {
        item["key"]
        for workload in workloads().values()
        for volume in workload.pod.get("volumes", [])
        for item in volume.get("secret", {}).get("items", [])
    }


def test_the_job_creates_every_entry_that_the_parts_and_the_guide_name() -> None:
    entries = cluster_secret.random_entries().keys()
    assert wanted_entries() - SWITCHES <= entries
    shown = set(
        re.findall(r"kubectl get secret task-queue -n task-queue -o jsonpath='\{\.data\.([\w-]+)\}'", DOCUMENTS)
    )
    assert wanted_entries() - SWITCHES | shown == entries
    assert JOB.container["command"] == ["python", "-m", cluster_secret.__name__]
    assert JOB.container["args"] == of_kind("Role")["credentials"]["rules"][0]["resourceNames"] == ["task-queue"]
    assert JOB.container["image"] == workloads()["gateway"].container["image"]


def test_a_job_that_has_ended_is_removed_so_that_an_apply_may_change_it() -> None:
    assert 60 <= JOB.manifest["spec"]["ttlSecondsAfterFinished"] <= 600
    assert JOB.pod["restartPolicy"] == "OnFailure"
    assert JOB.manifest["spec"]["backoffLimit"] >= 10, "the network may need a moment"
    assert JOB.pod["enableServiceLinks"] is False


# --- the code ---


@OUR_PARTS
def test_every_variable_is_a_setting_and_has_a_value_that_is_one(workload: Workload) -> None:
    environment = workload.environment()
    unknown = {name for name in environment if name.lower() not in Settings.model_fields}
    assert not {name for name in unknown if not name.startswith("OTEL_")}
    load(environment)


@OUR_PARTS
def test_commands_and_ports_are_those_of_the_code(workload: Workload) -> None:
    assert workload.container["command"] == ["firmq", workload.name]
    assert workload.name in COMMANDS
    settings = load(workload.environment())
    ports = {
        "gateway": [settings.gateway_port, settings.gateway_public_port],
        "dashboard": [settings.dashboard_port],
        "worker": [settings.worker_metrics_port],
        "housekeeper": [settings.housekeeper_metrics_port],
    }[workload.name]
    assert list(workload.ports.values()) == ports
    assert settings.bind_host == "0.0.0.0"
    assert settings.store_url == "redis://:made-up-as-the-cluster-would@redis:6379/0"
    assert settings.log_format == "json"


def test_services_have_the_ports_of_the_guide_and_lead_to_their_pods() -> None:
    services = {name: each for name, each in of_kind("Service").items() if not name.endswith("-load-balancer")}
    ports = {name: [port["port"] for port in each["spec"]["ports"]] for name, each in services.items()}
    assert ports == {
        "gateway": [5000],
        "dashboard": [5001],
        "worker": [9100],
        "housekeeper": [9101],
        "redis": [6379],
        "prometheus": [9090],
        "jaeger": [4318, 16686],
    }
    for name, service in services.items():
        assert service["spec"]["selector"] == {NAME: name}
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
        for port in service["spec"]["ports"]:
            assert workloads()[name].ports[port["targetPort"]] == port["port"]


@pytest.mark.parametrize(("name", "ports"), [("gateway", (5000, "public")), ("dashboard", (5001, "http"))])
def test_a_load_balancer_has_an_address_of_the_private_network(name: str, ports: tuple[int, str]) -> None:
    service = of_kind("Service")[f"{name}-load-balancer"]
    spec = service["spec"]
    assert {
        "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
        "networking.gke.io/load-balancer-type": "Internal",
        "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
    }.items() <= service["metadata"]["annotations"].items()
    assert spec["type"] == "LoadBalancer"
    assert spec["selector"] == {NAME: name}
    assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [ports]
    assert spec["allocateLoadBalancerNodePorts"] is False, "nodes may have public addresses"
    assert spec["externalTrafficPolicy"] == "Local", "the policy sees the address of the client"
    ranges = spec["loadBalancerSourceRanges"]
    assert all(ipaddress.ip_network(each).is_private for each in ranges)
    [rule] = of_kind("NetworkPolicy")[f"{name}-load-balancer"]["spec"]["ingress"]
    assert [peer["ipBlock"] for peer in rule["from"]] == [{"cidr": each} for each in ranges]


def test_the_gateways_ask_every_worker_and_housekeeper_for_its_metrics() -> None:
    sources = load(workloads()["gateway"].environment()).metrics_sources
    assert sorted(sources) == ["housekeeper:9101", "worker:9100"]
    for source in sources:
        service = of_kind("Service")[source.partition(":")[0]]["spec"]
        assert service["clusterIP"] == "None", "its name has the address of each pod"
        assert service["publishNotReadyAddresses"]
        assert [str(port["port"]) for port in service["ports"]] == [source.partition(":")[2]]


@OUR_PARTS
def test_the_image_carries_the_version_of_the_code(workload: Workload) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert workload.container["image"].endswith(f"firmq:{version}")


def test_access_requires_a_key_or_a_password() -> None:
    assert not [name for name in OURS if load(workloads()[name].environment()).allow_anonymous]
    assert "DASHBOARD_USERS" in workloads()["dashboard"].environment()


def test_the_gateway_reads_its_keys_from_a_mounted_secret_and_is_not_restarted_when_they_change() -> None:
    workload = workloads()["gateway"]
    path = Path(load(workload.environment()).api_keys_file)
    [mount] = [each for each in workload.container["volumeMounts"] if each["mountPath"] == str(path.parent)]
    assert mount["readOnly"]
    assert "subPath" not in mount, "what is mounted so is never changed"
    [volume] = [each for each in workload.pod["volumes"] if each["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "task-queue"
    assert volume["secret"]["items"] == [{"key": "api-keys", "path": path.name}]
    assert not volume["secret"].get("optional")
    assert volume["secret"]["defaultMode"] == 0o440


# --- stopping ---


@pytest.mark.parametrize("name", ["gateway", "dashboard"])
def test_a_server_stops_listening_once_requests_stop(name: str) -> None:
    drain = {"gateway": gateway_server.DRAIN_SECONDS, "dashboard": dashboard_server.DRAIN_SECONDS}[name]
    workload = workloads()[name]
    delay = load(workload.environment()).shutdown_delay
    assert delay >= 10
    assert workload.pod["terminationGracePeriodSeconds"] >= delay + drain + 5
    assert "lifecycle" not in workload.container, "a preStop would put off Connection: close"


def test_a_worker_has_longer_than_its_drain() -> None:
    worker = workloads()["worker"]
    settings = load(worker.environment())
    assert worker.pod["terminationGracePeriodSeconds"] >= settings.drain_grace + settings.kill_grace + 10


def test_executors_together_stay_below_the_limit_of_their_container() -> None:
    """At the limit the kernel ends the whole container; one executor that is stopped by its worker costs one task."""
    worker = workloads()["worker"]
    settings = load(worker.environment())
    assert settings.worker_executors, "a container sees all processors of its node"
    most = settings.executors * settings.executor_max_memory_bytes
    assert most + (128 << 20) <= size(worker.container["resources"]["limits"]["memory"])
    assert settings.executor_recycle_memory_bytes < settings.executor_max_memory_bytes
    assert load(workloads()["gateway"].environment()).gateway_processes


# --- disruptions ---


@OUR_PARTS
def test_pods_are_spread_and_leave_a_few_at_a_time(workload: Workload) -> None:
    spread = {each["topologyKey"]: each for each in workload.pod["topologySpreadConstraints"]}
    assert spread.keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert all(each["labelSelector"]["matchLabels"] == {NAME: workload.name} for each in spread.values())
    [apart] = workload.pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"] == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {NAME: workload.name}},
    }
    budget = of_kind("PodDisruptionBudget")[workload.name]["spec"]
    assert budget["selector"]["matchLabels"] == {NAME: workload.name}
    scaler = of_kind("HorizontalPodAutoscaler").get(workload.name)
    fewest = scaler["spec"]["minReplicas"] if scaler else workload.manifest["spec"].get("replicas")
    assert (fewest is None) == (workload.name == "worker"), "which people scale, or KEDA"
    assert fewest is None or fewest >= 2, "one pod can only be away or in the way"


def test_three_housekeepers_share_the_work_under_their_own_names() -> None:
    housekeeper = workloads()["housekeeper"]
    assert housekeeper.manifest["spec"]["replicas"] == 3
    assert load(housekeeper.environment()).housekeeper_distributed_execution_enabled
    [name] = [each for each in housekeeper.container["env"] if each["name"].endswith("INSTANCE_ID")]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


def test_an_apply_leaves_as_many_workers_as_there_are() -> None:
    assert "replicas" not in workloads()["worker"].manifest["spec"], "every apply would undo kubectl scale and KEDA"
    assert "kubectl scale deployment worker -n task-queue --replicas=" in DOCUMENTS


def test_what_is_requested_fits_beside_others_on_a_node_of_two_processors() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+)m \| (\S+) \| (\S+) \| (\S+) \|$", K8S_README, re.MULTILINE)
    told = {name: (int(pods), int(cpu), *others) for name, pods, cpu, *others in rows}
    assert told == {name: (pods_of(each), *_asked_for(each)) for name, each in workloads().items()}
    assert sum(pods * cpu for pods, cpu, *_ in told.values()) <= 1000


def pods_of(workload: Workload) -> int:
    """How many there are at first."""
    scaler = of_kind("HorizontalPodAutoscaler").get(workload.name)
    return int(scaler["spec"]["minReplicas"] if scaler else workload.manifest["spec"].get("replicas", 1))


def _asked_for(workload: Workload) -> tuple[int, str, str, str]:
    resources = workload.container["resources"]
    requests, limits = resources["requests"], resources["limits"]
    return int(requests["cpu"].removesuffix("m")), requests["memory"], limits["cpu"], limits["memory"]


def test_redis_has_priority_over_every_other_part() -> None:
    [(name, priority)] = of_kind("PriorityClass").items()
    assert priority["value"] > 0
    assert [each.name for each in workloads().values() if each.pod.get("priorityClassName")] == ["redis"]
    assert workloads()["redis"].pod["priorityClassName"] == name


def test_the_autoscaler_alone_says_how_many_gateways_there_are() -> None:
    scaler = of_kind("HorizontalPodAutoscaler")["gateway"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gateway"}
    assert "replicas" not in workloads()["gateway"].manifest["spec"], "every apply would reset what it decided"


# --- Redis ---


def redis_conf() -> dict[str, str]:
    lines = config_map("redis")["redis.conf"].splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def test_redis_keeps_what_it_took_and_throws_nothing_away() -> None:
    told = redis_conf()
    assert (told["appendonly"], told["maxmemory-policy"], told["dir"]) == ("yes", "noeviction", "/data")
    redis = workloads()["redis"]
    [claim] = redis.manifest["spec"]["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": "/data"} in redis.container["volumeMounts"]
    limit = size(redis.container["resources"]["limits"]["memory"])
    assert size(told["maxmemory"].replace("mb", "Mi")) <= 0.7 * limit, "rewriting its file takes memory too"
    assert size(claim["spec"]["resources"]["requests"]["storage"]) >= 4 * limit


def test_what_is_kept_of_ended_tasks_fits_into_half_of_redis() -> None:
    """Else submissions are refused on an ordinary busy day: README.md has what a task takes."""
    settings = load(workloads()["housekeeper"].environment())
    kept = settings.max_completed + settings.max_failed + settings.max_cancelled + settings.max_expired
    assert kept * 2100 <= size(redis_conf()["maxmemory"].replace("mb", "Mi")) / 2


# --- the network ---


def test_only_the_needed_connections_are_let_through() -> None:
    pods = (*workloads(), JOB.name)
    port = {name: workloads()[name].ports for name in workloads()}
    meant = {(part, "redis", 6379) for part in OURS}
    meant |= {(part, "jaeger", port["jaeger"]["otlp-http"]) for part in tracing_parts()}
    meant |= {("prometheus", part, port[part]["metrics"]) for part in ("worker", "housekeeper")}
    meant |= {("prometheus", part, port[part]["http"]) for part in ("gateway", "dashboard")}
    meant |= {("gateway", part, port[part]["metrics"]) for part in ("worker", "housekeeper")}
    meant |= {("gateway", "prometheus", port["prometheus"]["http"])}  # for the doctor
    meant |= {(CLIENTS, "gateway", port["gateway"]["http"])}
    meant |= {(OUTSIDE, "gateway", port["gateway"]["public"]), (OUTSIDE, "dashboard", port["dashboard"]["http"])}
    meant |= {(pod, OUTSIDE, each) for pod in ("prometheus", JOB.name) for each in (443, 6443)}  # the API server
    meant |= {(pod, DNS, 53) for pod in pods}
    assert edges(of_kind("NetworkPolicy").values(), pods) == meant


def tracing_parts() -> set[str]:
    """The parts whose code sends traces."""
    sources = [path.read_text() for part in ("gateway", "worker", "dashboard") for path in (ROOT / part).rglob("*.py")]
    return {name for text in sources for name in re.findall(r'\bTracing\(\s*"(\w+)"', text)}


@pytest.mark.parametrize("direction", ["Ingress", "Egress"])
def test_traffic_without_a_policy_is_denied_to_new_pods_too(direction: str) -> None:
    pods = (*workloads(), JOB.name, "some-pod-of-tomorrow")
    assert isolated(of_kind("NetworkPolicy").values(), pods, direction) == set(pods)
