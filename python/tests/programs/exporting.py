"""Runs the page's lines for OpenTelemetry, and reports the lines that an exporter gets by OTLP.

The arguments after the report's path are the lines of the page, and how many all-reduces follow.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
import torch.distributed as dist
from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

received: list[bytes] = []


class _Receiver(BaseHTTPRequestHandler):
    """Keeps each body that is posted."""

    def do_POST(self) -> None:
        received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def exported() -> dict[str, dict[str, object]]:
    """Return, for each metric of the last request, its value, unit and attributes."""
    request = ExportMetricsServiceRequest.FromString(received[-1])
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    seen: dict[str, dict[str, object]] = {"scope": {"name": scope.scope.name}}
    for metric in scope.metrics:
        (point,) = metric.sum.data_points
        attributes = {entry.key: entry.value.int_value for entry in point.attributes}
        seen[metric.name] = {
            "value": point.as_int,
            "monotonic": metric.sum.is_monotonic,
            "attributes": attributes,
        }
    return seen


def main() -> None:
    """Export before and after some all-reduces."""
    path, lines, count = sys.argv[1:]
    server = HTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1/metrics"
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=endpoint), export_interval_millis=3_600_000
    )
    provider = MeterProvider(metric_readers=[reader])
    metrics.set_meter_provider(provider)
    dist.init_process_group("gradwire")
    exec(lines, {"dist": dist})
    for _ in range(int(count)):
        dist.all_reduce(torch.ones(1 << 16))
    assert provider.force_flush()
    with open(path, "w") as out:
        json.dump(exported(), out)
    dist.destroy_process_group()
    provider.shutdown()


os.environ.pop("http_proxy", None)
os.environ.pop("HTTP_PROXY", None)
main()
