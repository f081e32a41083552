"""Settings of the project. DJANGO_DATABASE is the file of its database, or "FOLDER NAME" for PostgreSQL on a socket."""

import os
from typing import Any


def database(text: str) -> dict[str, Any]:
    """Returns the entry of DATABASES."""
    host, _, name = text.rpartition(" ")
    kind = {"ENGINE": "django.db.backends.postgresql", "HOST": host, "USER": "postgres"}
    age = os.environ.get("DJANGO_CONN_MAX_AGE", "600")
    return {
        **(kind if host else {"ENGINE": "django.db.backends.sqlite3"}),
        "NAME": name,
        "CONN_MAX_AGE": {"None": None, "pool": 0}[age] if age in ("None", "pool") else int(age),
        "OPTIONS": {"pool": True} if age == "pool" else {},
        "CONN_HEALTH_CHECKS": True,
    }


SECRET_KEY = "tests"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "firmq.django",
    "tests.support.django_project",
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
ROOT_URLCONF = "tests.support.django_project.urls"
DATABASES = {"default": database(os.environ.get("DJANGO_DATABASE", ":memory:"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGGING_CONFIG = None
TASKS = {
    "default": {
        "BACKEND": "firmq.django.FirmqBackend",
        "QUEUES": ["default", "critical", "reports", "not a name"],
        "OPTIONS": {"DASHBOARD_URL": "http://dashboard.example"},
    },
    "patient": {
        "BACKEND": "firmq.django.FirmqBackend",
        "OPTIONS": {"TASK_OPTIONS": {"max_retries": 0, "tags": ["patient"]}},
    },
}
FIRMQ = {"WORKER_EXECUTORS": 1, "LOG_LEVEL": "INFO"}
