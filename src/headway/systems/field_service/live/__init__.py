"""The live page: each request, who was asked, what they said, and the time left."""
