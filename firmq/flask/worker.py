"""Loads the Flask app of a worker, so that handlers run in its context: TASK_MODULES=firmq.flask.worker.

FLASK_APP names the app or its factory as for the command `flask`. Without it the app is in wsgi.py or app.py.
"""

from __future__ import annotations

import os

from flask.cli import ScriptInfo

app = ScriptInfo(os.environ.get("FLASK_APP")).load_app()
if "firmq" not in app.extensions:
    raise RuntimeError(f"the app {app.name!r} has no Firmq: call Firmq(app), or init_app(app)")
