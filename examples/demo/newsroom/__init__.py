"""A newsroom: notifications by e-mail to a real mail server, which counts what arrives."""
