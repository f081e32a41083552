"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("prices", models.JSONField()),
                ("invoice", models.CharField(blank=True, max_length=200)),
                ("receipt", models.CharField(blank=True, max_length=200)),
            ],
        ),
    ]
