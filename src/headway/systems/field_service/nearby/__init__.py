"""Who is near: the technicians on duty around a position, nearest first, by an index."""
