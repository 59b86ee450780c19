"""The PostgreSQL store: many machines."""
