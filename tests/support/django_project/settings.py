"""Settings of the project; DJANGO_DATABASE is the file of its database."""

import os

SECRET_KEY = "tests"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "taskqueue.django",
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
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DJANGO_DATABASE", ":memory:"),
        "CONN_MAX_AGE": 600,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGGING_CONFIG = None
TASKS = {
    "default": {
        "BACKEND": "taskqueue.django.TaskQueueBackend",
        "QUEUES": ["default", "critical", "reports", "not a name"],
        "OPTIONS": {"DASHBOARD_URL": "http://dashboard.example"},
    },
    "patient": {
        "BACKEND": "taskqueue.django.TaskQueueBackend",
        "OPTIONS": {"TASK_OPTIONS": {"max_retries": 0, "tags": ["patient"]}},
    },
}
TASKQUEUE = {"WORKER_EXECUTORS": 1, "LOG_LEVEL": "INFO"}
