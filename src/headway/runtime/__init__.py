"""What users write with and what runs it: the App, the Worker, and the chores."""
