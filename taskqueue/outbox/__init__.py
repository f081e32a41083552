"""An outbox: tasks are submitted by rows in the caller's own database transaction.

from taskqueue import outbox

with Session(engine) as session, session.begin():
    session.add(order)
    outbox.add(session, send_invoice, order=7)

A relay (`taskqueue outbox`) sends each committed row; it becomes exactly one task. These names are for SQLAlchemy 2;
`taskqueue.django.outbox` is the same for Django.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers."""

if TYPE_CHECKING:
    from taskqueue.outbox.sqlalchemy import OutboxRow, add, create_table, outbox_table
    from taskqueue.outbox.transactions import submit_on_commit

__all__ = ["OutboxRow", "add", "create_table", "outbox_table", "submit_on_commit"]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports a public name when it is first used: the relay of a Django project does without SQLAlchemy."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from taskqueue.shared.errors import needs

        home = "transactions" if name == "submit_on_commit" else "sqlalchemy"
        with needs("taskqueue.outbox", extra="sqlalchemy"):
            module = import_module(f"taskqueue.outbox.{home}")
        value = globals()[name] = getattr(module, name)
        return value
