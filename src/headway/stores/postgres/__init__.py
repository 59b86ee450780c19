"""The PostgreSQL store, for any number of processes on any number of machines."""
