# Tasks of a checkout. `make` lists them.
#
# The environment in .venv is created on first use, and again if pyproject.toml changes or the checkout was moved.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test test-all test-fast figures test-pythons test-cluster bench-partitions fuzz chaos chaos-selftest load check size scan format bench outbox lock manifests helm checkov env backup restore verify-compose verify-kubernetes clean

# A Python >= 3.11 with the venv module. PYTHON=/path/to/python overrides the search.
PYTHON ?=
PYTHONS := python3.13 python3.12 python3.11 python3
# Test processes, each with its own Redis; most tests wait more than they compute. 0 runs all tests in one process.
TEST_PROCESSES ?= 4
# The compose command: make backup COMPOSE="docker compose -p other"
COMPOSE ?= docker compose
# Further arguments for pytest: make test ARGS="-k lock -x"
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-input
SOURCES := $(wildcard gateway worker dashboard shared firmq tests examples tools noxfile.py)

# An environment without its Python, or created for another folder, is removed, as it would fail with obscure errors.
ifneq ($(wildcard $(VENV)/.made-in),)
ifneq ($(shell cat $(VENV)/.made-in; $(PY) -c 'print("works")' 2>/dev/null),$(CURDIR) works)
$(shell rm -rf $(VENV))
endif
endif

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS='|' read -r target text; do printf '%-22s%s\n' "$$target" "$$text"; done

setup: $(VENV)/.run ## create the environment for `make run` and the commands in .venv/bin

run: $(VENV)/.run ## start everything on this machine; Ctrl-C stops it
	@exec $(PY) -m firmq dev

# What takes longest and seldom fails for a small change: `make test` leaves it to `make test-all`, which CI runs. Of
# features it runs the tests of endpoints and pages.
LONG := tests/labs tests/deployment tests/monitoring tests/acceptance \
  $(addprefix tests/integration/,quarantine redis generated_clients django flask fastapi testing observability \
    client/test_events.py gateway/test_fuzz.py stores/test_command_bounds.py) \
  $(addprefix tests/integration/dashboard/test_,browser.py tabs.py lost_workers.py) \
  $(addprefix tests/integration/housekeeping/test_,alerts.py chaos.py many_due.py) \
  $(addprefix tests/integration/worker/test_,concurrent_executors.py endurance.py faults.py hooks.py leftovers.py \
    limits_under_load.py liveness.py plain_program.py process_trees.py queue_executors.py queues_by_name.py \
    random_dependencies.py rolling_restart.py rolling_update.py rq_tools.py scores.py start_hooks.py two_versions.py) \
  $(filter-out %/test_endpoints.py %/test_pages.py,$(wildcard tests/features/*/test_*.py))

# What depends most on the version of Python: `make test-all` runs it on the supported version farthest from that of .venv.
ON_EACH_PYTHON := tests/unit tests/acceptance/test_package.py tests/integration/django

SIDE_BY_SIDE := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
PYTEST := $(PY) -m pytest $(SIDE_BY_SIDE) -m "not alone" $(if $(CI),--timeout 900)
# The versions of Python beside that of .venv which are in PATH or installed by pyenv; its summary names those that are not.
PYENV := $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.1[1-9].*/bin)
OTHER_END = $(shell $(PY) -c 'import sys; print("3.11" if sys.version_info >= (3, 13) else "3.13")')
ON_OTHER_PYTHONS = PATH="$(subst $() ,,$(addsuffix :,$(PYENV)))$$PATH" $(PY) -m nox --session $(1) -- $(SIDE_BY_SIDE) -m "not alone"

# Tests start a thousand processes: without byte code on disk, each of them compiles the product anew.
test test-all test-pythons: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev ## run the tests of the core, about five minutes; or some of all: make test ARGS="tests/unit -k lock"
	$(PYTEST) $(if $(findstring tests/,$(ARGS)),,$(addprefix --ignore=,$(LONG))) $(ARGS)

test-all: $(VENV)/.dev ## run all tests, also those that take long or need the machine to themselves
	$(PYTEST) $(ARGS)
	$(PY) -m pytest -m alone $(ARGS) || test $$? -eq 5 # 5: there are none
	$(call ON_OTHER_PYTHONS,tests-$(OTHER_END)) $(if $(findstring tests/,$(ARGS)),,$(ON_EACH_PYTHON)) $(ARGS)

test-pythons: $(VENV)/.dev ## run all tests on the other versions of Python that are installed: 3.11, 3.12, 3.13
	$(call ON_OTHER_PYTHONS,tests) $(ARGS)

test-fast: $(VENV)/.dev ## run the tests of rules and scripts, which start no parts (one minute)
	$(PY) -m pytest -n $(TEST_PROCESSES) tests/unit tests/integration/model tests/integration/stores/test_scripts.py -m "not alone" $(ARGS)

figures: $(VENV)/.dev ## judge the seconds that tests print, on a machine that does nothing else
	TEST_FIGURES=1 $(PY) -m pytest -s $$(grep -rl --include='test_*.py' 'support.figures' tests) $(ARGS)

# FUZZ_EXAMPLES is the number of generated requests per endpoint, beside those derived from its schema.
fuzz: export FUZZ_EXAMPLES ?= 500
fuzz: $(VENV)/.dev ## fuzz every endpoint with valid and invalid requests, for some minutes
	$(PY) -m pytest --timeout 3600 tests/integration/gateway/test_fuzz.py $(ARGS)

# SEEDS are the random seeds, MINUTES is the duration of the faults for each of them.
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
MINUTES ?= 5
# PARTITIONS is the number of Redis servers; with more than one, the laboratory of partitions runs.
PARTITIONS ?= 1
chaos: $(VENV)/.dev ## inject faults into all parts and check every guarantee: make chaos SEEDS="1 2" MINUTES=1 PARTITIONS=3
	$(PY) -m tests.$(if $(filter 1,$(PARTITIONS)),labs.faults,features.partitions.laboratory --partitions $(PARTITIONS)) --seeds $(SEEDS) --minutes $(MINUTES) $(ARGS)

# The other tests of parts and scripts run on one node, where a key outside the slot of the system's prefix fails.
test-cluster: $(VENV)/.dev ## run the tests of partitions on a Redis Cluster, and the other integration tests on one node
	TEST_CLUSTER=1 $(PY) -m pytest -n 2 --dist loadfile tests/features/partitions $(ARGS)
	TEST_ONE_SLOT=1 $(PYTEST) tests/integration tests/features \
	  $(addprefix --ignore=,tests/features/partitions $(wildcard tests/features/*/test_failpoints.py)) $(ARGS)

# ROUNDS is the number of measurements of each kind.
ROUNDS ?= 5
bench-partitions: $(VENV)/.dev ## measure how much more three throttled Redis servers do than one
	$(PY) -m tests.features.partitions.laboratory --speed $(ROUNDS) $(ARGS)

chaos-selftest: $(VENV)/.dev ## plant a bug for each guarantee and check that it is found
	$(PY) -m tests.labs.faults.selftest $(ARGS)

# MINUTES is the duration of the measurement; startup, finding the capacity and warm-up take four more.
load: export MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),60)
load: $(VENV)/.dev ## run at half of the capacity for an hour and report growth and slowdown: make load MINUTES=10
	$(PY) -m tests.labs.load --minutes $(MINUTES) $(ARGS)

# KILLS is the number of processes that are killed; on a PostgreSQL: ARGS="--database postgresql+psycopg://user@host/name".
KILLS ?= 1000
outbox: $(VENV)/.dev ## kill programs, relays and Redis around an outbox and check each row: make outbox KILLS=100
	$(PY) -m tests.labs.outbox --kills $(KILLS) $(ARGS)

check: $(VENV)/.dev ## check formatting, lint (also Lua), types, import rules, generated pages, registrations, commits, budgets of size, secrets, vulnerable dependencies
	$(PY) -m ruff format --check $(SOURCES)
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m tools.lint_lua
	$(PY) -m tools.reference --check
	$(PY) -m tools.unasync --check
	$(PY) -m pytest -q -m registration
	$(PY) -m tools.commits
	$(PY) -m tools.size --check
	$(PY) -m tests.security.scan
	$(PY) -m tests.security.audit

size: $(VENV)/.dev ## print how large the product is, with its budgets and targets
	@$(PY) -m tools.size

scan: $(VENV)/.dev $(VENV)/.checkov $(VENV)/bin/helm ## scan Dockerfile, manifests, overlays, chart and dependencies for known weaknesses
	$(VENV)/checkov/bin/checkov --framework dockerfile --skip-download --compact --quiet --file Dockerfile
	$(PY) -m pytest tests/deployment/test_scan.py
	$(PY) -m tests.security.audit --hard

format: $(VENV)/.dev ## format the code and apply automatic fixes
	$(PY) -m ruff format $(SOURCES)
	$(PY) -m ruff check --fix $(SOURCES)

bench: $(VENV)/.dev ## run the benchmarks, side by side with other queues
	$(PY) -m tests.labs.bench $(ARGS)

lock: $(VENV)/.dev ## update requirements.lock, from which the image is built
	$(PIP) 'uv>=0.9,<1'
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --extra server --extra sqlalchemy --extra postgresql --extra s3 --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml

manifests: $(VENV)/.dev ## render k8s/deployment.yaml from its parts (needs kubectl), and the Helm chart from it
	@rendered=$$(kubectl kustomize k8s/overlays/production) && { \
	  echo "# Made by \`make manifests\` of overlays/production and base: change those."; echo "$$rendered"; \
	} > k8s/deployment.yaml
	@$(PY) -m tools.helm_chart

helm: $(VENV)/bin/helm ## install helm into .venv, for the tests of the chart (Linux on x86-64)

$(VENV)/bin/helm: | $(VENV)/.made-in
	@$(PY) -m tools.get_helm $(@D)

# A last line without a newline is completed first; an empty password counts as missing.
env: ## write the passwords for docker-compose.yml into .env; existing ones are kept
	@touch .env && chmod 600 .env
	@test -z "$$(tail -c1 .env)" || echo >>.env
	@for name in REDIS_PASSWORD GRAFANA_PASSWORD; do \
	  if grep -q "^$$name=[\"' ]*[^\"'[:space:]]" .env; then echo "$$name is in .env already: left as it is"; continue; fi; \
	  printf '%s=%s\n' "$$name" "$$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >>.env; echo "$$name is in .env now"; \
	done

# A backup is complete if it is readable and contains every file that its manifest names.
MANIFEST := appendonly.aof.manifest
NAMED := / type h/d; s/^file \([^ ]*\) .*/\1/p
define whole
(tar -xOf "$(1)" >/dev/null && list=$$(tar -tf "$(1)") && manifest=$$(tar -xOf "$(1)" ./$(MANIFEST)) && \
  for name in $$(echo "$$manifest" | sed -n '$(NAMED)'); do \
    echo "$$list" | grep -qxF "./$$name" || { echo "$$name is missing" >&2; exit 1; }; done)
endef

# The append-only file may grow while it is read, but must not be rewritten.
backup: ## save Redis' data from the running containers: make backup TO=file.tar
	@test -n "$(TO)" || { echo "say where to: make backup TO=file.tar" >&2; exit 2; }
	@umask 077; trap 'exit 1' HUP INT TERM; trap 'rm -f "$(TO).part"' EXIT; \
	{ $(COMPOSE) exec -T redis sh -ec 'cd /data; trap "exit 1" HUP INT PIPE TERM; \
	  trap "rm -rf backup; redis-cli config set auto-aof-rewrite-percentage 100 >/dev/null" EXIT; rm -rf backup; \
	  redis-cli config set auto-aof-rewrite-percentage 0 >/dev/null; \
	  until redis-cli info persistence | grep -q aof_rewrite_in_progress:0; do sleep 1; done; \
	  cp -r appendonlydir backup; tar -C backup -cf - .' >"$(TO).part" && $(call whole,$(TO).part) && \
	  mv "$(TO).part" "$(TO)"; } || { echo "no backup was made; if there was a $(TO), it is as it was" >&2; exit 1; }

# The backup is unpacked beside the data and replaces it only when complete; the old data is kept as before-restore.
restore: ## replace Redis' data with a backup: make restore FROM=file.tar
	@test -f "$(FROM)" || { echo "say which backup: make restore FROM=file.tar" >&2; exit 2; }
	@$(call whole,$(FROM)) || { echo "$(FROM) is no whole backup; nothing was changed" >&2; exit 2; }
	@trap 'exit 1' HUP INT TERM; trap '$(COMPOSE) start' EXIT; $(COMPOSE) stop && \
	$(COMPOSE) run --rm -T --no-deps --entrypoint sh redis -ec 'cd /data; trap "exit 1" HUP INT TERM; \
	  trap "rm -rf restore; test -e appendonlydir || test ! -e before-restore || mv before-restore appendonlydir" EXIT; \
	  rm -rf restore; mkdir restore; tar -C restore -xf -; test -s restore/$(MANIFEST); \
	  for name in $$(sed -n "$(NAMED)" restore/$(MANIFEST)); do test -f "restore/$$name"; done; \
	  if test -e appendonlydir; then rm -rf before-restore; mv appendonlydir before-restore; fi; \
	  mv restore appendonlydir' <"$(FROM)" || { echo "nothing was restored; the data is as it was" >&2; exit 1; }

verify-compose: $(VENV)/.dev ## test docker-compose.yml on a real engine, from the build to the removal of the volumes
	$(PY) -m tests.deployment.verify_compose $(ARGS)

verify-kubernetes: $(VENV)/.dev ## test k8s/deployment.yaml on the cluster of KUBECONFIG, from the build to the removal
	$(PY) -m tests.deployment.verify_kubernetes $(ARGS)

clean: ## remove generated files, except the data in .data
	rm -rf $(VENV) .nox .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.run: pyproject.toml | $(VENV)/.made-in
	@echo "Installing what is needed to run (once) ..."
	@$(PIP) --editable '.[local]'
	@touch $@

# The development environment includes the run-time dependencies.
$(VENV)/.dev: pyproject.toml | $(VENV)/.made-in
	@echo "Installing what is needed to develop (once) ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.run $@

checkov: $(VENV)/.checkov ## install checkov into .venv, for `make scan` and the tests of the manifests (a minute)

# In its own environment, because it installs some ninety packages and pins older versions of a few.
$(VENV)/.checkov: k8s/requirements-scan.txt | $(VENV)/.made-in
	@echo "Installing checkov (once) ..."
	@$(PY) -m venv $(VENV)/checkov
	@$(VENV)/checkov/bin/python -m pip install --quiet --disable-pip-version-check --no-input --requirement k8s/requirements-scan.txt
	@touch $@

$(VENV)/.made-in:
	@found=; without_venv=; \
	for candidate in $(or $(PYTHON),$(PYTHONS)); do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then found=$$candidate; break; fi; \
	  without_venv=$$candidate; \
	done; \
	if [ -z "$$found" ] && [ -n "$$without_venv" ]; then \
	  echo "$$without_venv lacks the venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; \
	elif [ -z "$$found" ]; then \
	  echo "no Python 3.11 or newer found among $(or $(PYTHON),$(PYTHONS)): install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$found ..."; \
	"$$found" -m venv $(VENV)
	@echo "$(CURDIR)" > $@
