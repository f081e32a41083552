"""Models of requests and responses: they validate input and define the OpenAPI document.

There is one module per resource. Import the package and write `schemas.NAME` to use models of several modules.
"""

# ruff: noqa: F403  # every name of the files below is one of the package
from firmq.gateway.schemas.batches import *
from firmq.gateway.schemas.filters import *
from firmq.gateway.schemas.problems import *
from firmq.gateway.schemas.system import *
from firmq.gateway.schemas.tasks import *
from firmq.gateway.schemas.values import *
from firmq.shared.domain.values import *
from firmq.shared.submission.bodies import *
