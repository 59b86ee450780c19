"""What applications use, and what runs their jobs: the App, the Worker, and the chores."""
