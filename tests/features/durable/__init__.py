"""Durable functions: steps, sleeps, signals, children, output."""
