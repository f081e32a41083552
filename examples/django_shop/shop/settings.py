"""Settings of the shop."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY") or get_random_secret_key()
DEBUG = True
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "firmq.django",
    "shop",
    "worker",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "shop.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3")}
POSTGRESQL = {
    "ENGINE": "django.db.backends.postgresql",
    "HOST": os.environ.get("SHOP_DATABASE_HOST"),
    "NAME": "shop",
    "USER": "shop",
    "PASSWORD": os.environ.get("SHOP_DATABASE_PASSWORD"),
    "CONN_MAX_AGE": 60,
}
DATABASES = {"default": POSTGRESQL if POSTGRESQL["HOST"] else SQLITE}
TASKS = {
    "default": {
        "BACKEND": "firmq.django.FirmqBackend",  # the gateway's address is in FIRMQ_URL
        "OPTIONS": {"DASHBOARD_URL": "http://localhost:5001", "TASK_OPTIONS": {"timeout": 60}},
    }
}
FIRMQ = {"WORKER_EXECUTORS": 1}  # settings of firmq_worker and firmq_housekeeper
