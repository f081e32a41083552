"""What durable functions add to tables of other tests: `tests.support.features.rows` finds it by its name."""

from __future__ import annotations

import json
from typing import Any

from tests.support.keys import keys
from tests.support.store import Store

# --- pages and endpoints ---

CHANGES = ("/tasks/x/signals/x",)
OPERATE = {"POST /tasks/{task_id}/signals/{name}"}

# --- Redis ---

NEW = ("children_start",)


def children_with_all_that_a_child_can_have(store: Store) -> tuple[Any, ...]:
    from firmq.shared.stores.queues import submit_arguments
    from tests.integration.stores.test_command_bounds import HOOK, TAGS, claimed, noop

    [(task, token)] = claimed(store, 1)
    new = [noop(tags=TAGS, webhook=HOOK, limit_key="k", fair_key=f"t{at}") for at in range(250)]
    children = [part for child in new for part in submit_arguments(child)]
    return (task, token, "pages", '{"kind":"result"}', 1000, 1 << 20, "", 0, "", "pages", "0", *children)


def a_task_with_unread_signals_and_children(store: Store) -> tuple[Any, ...]:
    from tests.integration.stores.test_command_bounds import steps_of_a_task

    task_id, token = steps_of_a_task(store, "result")
    signals: Any = {f"step:signal:{number}": '{"kind":"signal"}' for number in range(1000)}
    parents = json.dumps([[f"task-{number}", "end", "pages"] for number in range(1000)])
    store.redis.hset(keys.rq_job(task_id), mapping=signals)
    store.redis.hset(keys.rq_job(task_id), "parents", parents)
    return (task_id, token, "[]", 0)


WORST = (
    ("children_start", 4100, children_with_all_that_a_child_can_have),
    ("steps_restart", 2100, a_task_with_unread_signals_and_children),
)
FEW = (
    ("signal_send", ("id", "approval", '""', "null", 1000, 1 << 20)),
    ("output_append", ("id", "token", 1, 1, '"chunk"', 1 << 20)),
)
PLANTED = (
    ("a signal wakes nobody", "signal_send", "then run_now_one(id) end", "then local _ = id end"),
    ("children are started by who lost the lease", "children_start", "t.token ~= token or", "false or"),
    ("a task that begins anew keeps its steps", "steps_restart", "gone[#gone + 1] = field"),
    (
        "a task that begins anew loses a signal",
        "steps_restart",
        "signals, bytes = signals + 1, bytes + #value",
        "gone[#gone + 1] = field",
    ),
    ("a task that begins anew keeps its children", "steps_restart", "if parent[3] then", "if false then"),
)

# --- the fault laboratory ---

MUTATIONS = (
    (
        "a step that is stored behind one that Redis has lost",
        "A stored step of a durable function",
        "shared/redis/lua/steps/step_save.lua",
        "if is_behind(t, ARGV[9], ARGV[10]) then return {'behind', ''} end\n",
        "",
        ("features/durable/test_lost_steps", "test_a_signal_that_comes_after_a_loss_does_not_hide_it"),
    ),
    (
        "a signal that wakes no task",
        "An accepted signal reaches its handler",
        "shared/features/durable/lua/signal_send.lua",
        "if t.state == 'scheduled' and t.awaits == 'signal ' .. ARGV[3] then run_now_one(id) end\n",
        "",
        ("features/durable/test_signals_store", "test_a_signal_wakes_the_task_that_waits_for_it"),
    ),
)
