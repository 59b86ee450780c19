"""Senders: each hands one message to one provider and says what became of it."""
