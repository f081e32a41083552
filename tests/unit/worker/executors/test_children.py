"""Processes that outlive an attempt are ended, and only those."""

from __future__ import annotations

import subprocess
import sys

from tests.support.harness import ROOT

CODE = """
import multiprocessing, os, subprocess, sys, time
from multiprocessing import shared_memory
from firmq.worker.executors.children import Children
from firmq.worker.executors.process_tree import name_of

def named(pid):
    while name_of(pid) != "sleep":  # the kernel names a process a moment after the program has begun
        time.sleep(0.01)

stays = subprocess.Popen(["sleep", "600"])
children = Children()
assert children.end_new() == []
direct = subprocess.Popen(["sleep", "601"], start_new_session=True)
reader, writer = os.pipe()
if os.fork() == 0:  # a daemon: its parent ends at once, and it has a session of its own
    os.setsid()
    if os.fork() == 0:
        os.write(writer, str(os.getpid()).encode())
        time.sleep(602)
    os._exit(0)
daemon = int(os.read(reader, 20))
named(direct.pid)
ended = children.end_new()
assert children.missed, "an object stands for the direct one"
assert sorted(ended)[-1] == "sleep" and len(ended) >= 2, ended
assert children.end_new() == []
named(subprocess.Popen(["sleep", "603"]).pid)
children.missed = False
assert children.end_new() == ["sleep"] and not children.missed, "no object stands for it"
kept = multiprocessing.Process(target=time.sleep, args=(604,))
kept.start()
assert children.end_new() and children.missed
shared_memory.SharedMemory(create=True, size=1).unlink()
assert children.end_new() == [], "Python's own tracker stays"
itself = subprocess.Popen(["true"])
os.waitid(os.P_PID, itself.pid, os.WEXITED | os.WNOWAIT)
assert children.end_new() == [], "it was not ended by us"
for pid in (direct.pid, daemon):
    try:
        os.kill(pid, 0)
        sys.exit(f"{pid} lives")
    except ProcessLookupError:
        pass
assert stays.poll() is None
stays.kill()
"""


def test_children_and_daemons_of_an_attempt_are_ended_and_what_was_there_before_stays() -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, timeout=120, check=True)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
