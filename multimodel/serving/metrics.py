"""Metrics of a server, for Prometheus."""

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self):
        self.registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        self.requests = Counter("multimodel_requests", "Requests to predict", ["task", "code"], registry=registry)
        self.seconds = Histogram(
            "multimodel_request_seconds",
            "From a request's body to its answer",
            ["task"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "multimodel_batch_rows", "Rows answered together", ["task"], buckets=ROWS, registry=registry
        )
        self.queued = Gauge("multimodel_queued_rows", "Rows that wait", registry=registry)
        self.version = Gauge("multimodel_version", "The version that answers", registry=registry)

    def text(self):
        """All of them in Prometheus' text format, bytes."""
        return prometheus_client.generate_latest(self.registry)
