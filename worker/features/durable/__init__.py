"""Durable functions: handlers whose steps are stored, so that a later attempt does not repeat them."""
