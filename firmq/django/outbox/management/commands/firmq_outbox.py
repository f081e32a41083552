"""`manage.py firmq_outbox`: runs the relay of the outbox."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from firmq.django.outbox.table import DjangoTable
from firmq.shared.errors import NotInstalled, needs


class Command(BaseCommand):
    help = "Starts a relay, which sends the rows of the outbox to FIRMQ_URL."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--using", metavar="ALIAS", help="the database (default: the routers' choice)")
        does = parser.add_mutually_exclusive_group()
        does.add_argument("--refused", action="store_true", help="list the rows that were refused, and exit")
        does.add_argument("--retry", action="store_true", help="make refused rows wait again, and exit")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with needs("firmq_outbox", extra="django"):
                from firmq.outbox.process import refused_lines, run_relay
        except NotInstalled as error:
            raise CommandError(str(error)) from error
        from firmq.shared.config.settings import load_or_exit
        from firmq.shared.observability import logs

        table = DjangoTable(options["using"])
        if options["refused"]:
            self.stdout.writelines(f"{line}\n" for line in refused_lines(table))
        elif options["retry"]:
            self.stdout.write(f"{table.retry_refused()} rows wait again")
        else:
            settings = load_or_exit()
            logs.configure(
                "outbox",
                settings.log_level,
                settings.log_format,
                instance=settings.instance_id,
                export=settings.log_export,
            )
            run_relay(table, settings)
