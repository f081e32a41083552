"""The handlers: an agent that asks a model in turns, and the tool that the model may call."""

from __future__ import annotations

import json
import os

import httpx

from firmq import GiveUp, emit, gather, new_task, start_children, step, task

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:8199")
TOOL = "SEARCH "
"""A line of the model that begins with this calls the tool."""
Message = dict[str, str]

FACTS = {
    "capital of France": "Paris is the capital of France.",
    "population of Paris": "Paris has about two million inhabitants.",
}


@task("agent-search", max_retries=3)
def search(query: str) -> str:
    """Looks something up; stands for any tool."""
    return FACTS.get(query, f"Nothing is known about {query}.")


@task("agent", max_retries=10)
def run_agent(question: str, most_turns: int = 8) -> str:
    """Asks the model until it answers without calling a tool. Returns the answer."""
    conversation: list[Message] = [{"role": "user", "text": question}]
    for turn in range(most_turns):
        reply = step(f"model-{turn}", ask, conversation, retries=3)
        conversation.append({"role": "model", "text": reply})
        queries = [line.removeprefix(TOOL) for line in reply.splitlines() if line.startswith(TOOL)]
        if not queries:
            return reply
        children = start_children(f"search-{turn}", [new_task("agent-search", {"query": each}) for each in queries])
        conversation += [{"role": "tool", "text": found} for found in gather(children)]
    raise GiveUp(f"the model has called tools in each of {most_turns} turns")


def ask(conversation: list[Message]) -> str:
    """Returns the reply of the model, and emits its words as they come."""
    words = []
    with httpx.stream("POST", MODEL, json=conversation, timeout=60) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            word = json.loads(line)
            emit(word)
            words.append(word)
    return "".join(words)
