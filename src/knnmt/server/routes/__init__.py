"""The routes of the server, one module an interface: LibreTranslate's, translations with evidence, documents, the memory."""
