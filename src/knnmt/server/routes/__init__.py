"""The routes of the server, one module an interface: LibreTranslate's, translations, documents, the memory."""
