"""Tests for `docker-compose.yml` and `deploy/`: they name the versions and the metrics that the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streams.broker.jars import KAFKA_VERSION
from streams.metrics import Metrics

ROOT = Path(__file__).parents[2]


def test_compose_runs_the_embedded_brokers_version() -> None:
    """What works with the embedded broker meets the same Kafka in the containers."""
    assert f"image: apache/kafka:{KAFKA_VERSION} " in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


def test_every_image_is_pinned() -> None:
    """No image moves by itself."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8") + (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = re.findall(r"^(?: *image:|FROM) (\S+)", text, re.MULTILINE)
    assert len(images) >= 5
    assert [image for image in images if not re.search(r":v?\d+\.\d+\.\d+(-[a-z-]+)?$", image)] == []


def test_dashboard_asks_for_metrics_that_exist() -> None:
    """Every metric and label of every panel is one that the worker exports."""
    families = {family.name: family for family in Metrics().registry.collect()}
    names = {name for family in families for name in (family, f"{family}_total", f"{family}_bucket", f"{family}_count", f"{family}_sum")}
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/answerby.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"answerby_\w+", query)}
    assert len(used) >= 12
    assert used - names == set()
