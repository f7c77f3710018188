"""Metrics for Prometheus: counts and durations, never clients or texts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics. Labels are path patterns, methods and status codes: a fixed set, whatever clients send."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("knnmt_requests", "Requests handled", ["method", "route", "status"], registry=registry)
        self.seconds = Histogram(
            "knnmt_request_seconds", "Time to handle a request", ["route"], buckets=SECONDS, registry=registry
        )
        self.batch_segments = Histogram("knnmt_batch_segments", "Texts in a batch", buckets=SIZES, registry=registry)
        self.batch_requests = Histogram("knnmt_batch_requests", "Requests in a batch", buckets=SIZES, registry=registry)
        self.tokens = Counter("knnmt_source_tokens", "Source tokens translated", registry=registry)
        self.busy = Counter("knnmt_model_seconds", "Time the model was busy", registry=registry)
        self.taught = Counter("knnmt_taught_segments", "Segments added to the store", registry=registry)
        self.waiting = Gauge("knnmt_waiting_requests", "Requests in the queue", registry=registry)
        self.memory = Gauge("knnmt_memory_segments", "Segments in the store", registry=registry)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
