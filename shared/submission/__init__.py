"""Submission of tasks: what a gateway and a program that submits directly have in common."""
