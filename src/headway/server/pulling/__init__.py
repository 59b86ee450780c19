"""Pulling: claims that wait for work, at no cost while they wait."""
