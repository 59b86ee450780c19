"""Senders: each hands one message to one provider and returns the outcome."""
