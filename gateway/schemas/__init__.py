"""What requests may hold and what answers look like: checked at the door, printed in the OpenAPI document.

Cut by what they describe; whoever speaks of several says `schemas.NAME`.
"""

# ruff: noqa: F403  # every name of the files below is one of the package
from gateway.schemas.batches import *
from gateway.schemas.problems import *
from gateway.schemas.submission import *
from gateway.schemas.system import *
from gateway.schemas.tasks import *
from gateway.schemas.values import *
