"""A newsroom: notifications by email to a real mail server, which counts them."""
