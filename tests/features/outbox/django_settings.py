"""A Django project with an outbox; its database is named by the environment."""

import os

SECRET_KEY = "of a test"
INSTALLED_APPS = ["firmq.django.outbox"]
TASKS = {"default": {"BACKEND": "firmq.django.FirmqBackend"}}
USE_TZ = os.environ.get("SHOP_USE_TZ", "1") == "1"
TIME_ZONE = "Europe/Vienna"
DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{os.environ['SHOP_ENGINE']}",
        "NAME": os.environ["SHOP_NAME"],
        "HOST": os.environ.get("SHOP_HOST", ""),
        "PORT": os.environ.get("SHOP_PORT", ""),
        "USER": os.environ.get("SHOP_USER", ""),
    }
}
