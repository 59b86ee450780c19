"""What is done for callers, within what they may: routes and systems ask for it here."""
