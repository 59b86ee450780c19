"""Answers to questions, from one snapshot."""
