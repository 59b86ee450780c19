"""Translate the engine's rules from Python to Lua; `python -m tools.lua` regenerates them."""
