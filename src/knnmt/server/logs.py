"""Logs for machines: one JSON object a line."""

import json
import logging
import time


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON; an entry of the access log has fields for method, route, status and milliseconds."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.name == "knnmt.server.access" and isinstance(record.args, tuple) and len(record.args) == 4:
            entry |= dict(zip(("method", "route", "status", "ms"), record.args, strict=True))
        else:
            entry["message"] = record.getMessage()
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
