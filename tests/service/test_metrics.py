"""What Prometheus reads of the sample service: its calls to the store, on each database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from twinstore.observing.counters import METRICS

if TYPE_CHECKING:
    from tests.service.conftest import Api


def scraped(api: Api) -> dict[tuple[str, str, str, str], float]:
    """Return how often calls ended, by driver, entity, operation and outcome."""
    answer = api.http.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert all(f"# TYPE {metric.name} " in answer.text for metric in METRICS)
    assert "acme" not in answer.text
    return {
        (labels["driver"], labels["entity"], labels["operation"], labels["outcome"]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == METRICS[0].name and (labels := sample.labels)
    }


def test_the_calls_of_requests_are_counted(api: Api) -> None:
    driver = api.scheduler.driver
    before = scraped(api)
    assert before[driver, "storage", "ensure_migrations", "ok"] == 1
    assert api.http.get("/tenants/acme/runs/nothing").status_code == 404
    after = scraped(api)
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    assert grown == {(driver, "runs", "get_required", "not_found"): 1}
    assert "/metrics" not in api.http.get("/openapi.json").json()["paths"]
