"""An outbox: tasks are submitted by rows in the caller's own database transaction.

from firmq import outbox

with Session(engine) as session, session.begin():
    session.add(order)
    outbox.add(session, send_invoice, order=7)

A relay (`firmq outbox`) sends each committed row; it becomes exactly one task. These names are for SQLAlchemy 2;
`firmq.django.outbox` is the same for Django.
"""

from importlib import import_module

TYPE_CHECKING = False
"""True for type checkers."""

if TYPE_CHECKING:
    from firmq.outbox.sqlalchemy import OutboxRow, add, create_table, outbox_table
    from firmq.outbox.transactions import submit_on_commit

__all__ = ["OutboxRow", "add", "create_table", "outbox_table", "submit_on_commit"]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Imports a public name when it is first used: the relay of a Django project does without SQLAlchemy."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from firmq.shared.errors import needs

        home = "transactions" if name == "submit_on_commit" else "sqlalchemy"
        with needs("firmq.outbox", extra="sqlalchemy"):
            module = import_module(f"firmq.outbox.{home}")
        value = globals()[name] = getattr(module, name)
        return value
