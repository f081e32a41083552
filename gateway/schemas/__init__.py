"""Models of requests and responses: they validate input and define the OpenAPI document.

There is one module per resource. Import the package and write `schemas.NAME` to use models of several modules.
"""

# ruff: noqa: F403  # every name of the files below is one of the package
from gateway.schemas.batches import *
from gateway.schemas.problems import *
from gateway.schemas.submission import *
from gateway.schemas.system import *
from gateway.schemas.tasks import *
from gateway.schemas.values import *
