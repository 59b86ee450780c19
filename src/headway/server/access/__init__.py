"""Who may do what over HTTP."""
