"""Models of requests and responses: they validate input and define the OpenAPI document.

There is one module per resource. Import the package and write `schemas.NAME` to use models of several modules.
"""

# ruff: noqa: F403  # every name of the files below is one of the package
from taskqueue.gateway.schemas.analytics import *
from taskqueue.gateway.schemas.batches import *
from taskqueue.gateway.schemas.breakdown import *
from taskqueue.gateway.schemas.bulk_actions import *
from taskqueue.gateway.schemas.filters import *
from taskqueue.gateway.schemas.outbox import *
from taskqueue.gateway.schemas.problems import *
from taskqueue.gateway.schemas.system import *
from taskqueue.gateway.schemas.tasks import *
from taskqueue.gateway.schemas.values import *
from taskqueue.shared.submission.bodies import *
from taskqueue.shared.submission.values import *
