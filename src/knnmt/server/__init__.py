"""The server, its page, and what they need to handle markup."""
