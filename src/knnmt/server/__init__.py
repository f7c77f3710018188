"""The HTTP server: LibreTranslate's API, its own API, and a web page."""
