"""What routes answer with, and how it is described."""
