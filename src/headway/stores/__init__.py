"""Stores: where the state lives."""
