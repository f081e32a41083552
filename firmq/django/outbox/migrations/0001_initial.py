"""Creates the table of the outbox."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = ()

    operations = (
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("position", models.BigAutoField(primary_key=True, serialize=False)),
                ("task_id", models.CharField(max_length=26, unique=True)),
                ("type", models.CharField(max_length=100)),
                ("task", models.TextField()),
                ("traceparent", models.CharField(max_length=55, null=True)),
                ("created_at", models.DateTimeField()),
                ("state", models.CharField(db_default="waiting", default="waiting", max_length=8)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "outbox row",
                "db_table": "firmq_outbox",
                "indexes": [models.Index(fields=["state", "position"], name="firmq_outbox_in_order")],
            },
        ),
    )
