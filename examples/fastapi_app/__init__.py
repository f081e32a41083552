"""A FastAPI app that asks carriers for prices in a task: see README.md."""
