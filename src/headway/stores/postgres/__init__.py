"""The PostgreSQL store: any number of processes on any number of machines."""
