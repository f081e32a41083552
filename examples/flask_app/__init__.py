"""A Flask app that has texts analysed by workers: see README.md."""

from __future__ import annotations

from flask import Flask

from firmq.flask import Firmq

queue = Firmq()


def create_app() -> Flask:
    """Returns the app, for the web server and for workers."""
    app = Flask(__name__)
    app.config.update(MAX_CONTENT_LENGTH=200_000, WORDS_PER_MINUTE=230)
    app.config.from_prefixed_env()
    queue.init_app(app)

    from examples.flask_app.views import pages

    app.register_blueprint(pages)
    return app
