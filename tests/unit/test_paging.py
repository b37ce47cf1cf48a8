"""Page tokens are bound to their list, opaque to callers and harmless when tampered with."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore import aio
from twinstore.access.paging import Page, SortKey, each, encode_token, undecodable_row
from twinstore.access.query import Query, build_query
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Tenant, Tenants
from twinstore.errors import ValidationError
from twinstore.models.canonical import undecodable
from twinstore.scheduler import Run, RunQueryOptions, RunState, queries
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run

NOW = datetime(2025, 10, 26, 14, 5, 0, 123000, tzinfo=UTC)


TENANT = Tenant("t")
FIRST_RELEASE = (
    "eyJlIjoicnVucyIsImYiOiI4OTAzOTU3M2Q3OWNiMzZhIiwiayI6WyIyMDI1LTEwLTI2VDE0OjA1OjAwLjEyMyswMDowMCIsInJ1bi0xIl0sI"
    "nYiOjF9"
)


def token_for(options: RunQueryOptions = RunQueryOptions()) -> str:  # noqa: B008  # frozen
    return encode_token("runs", queries.runs(TENANT, options).fingerprint, (NOW, "run-1"))


def continued(
    token: str,
    options: RunQueryOptions = RunQueryOptions(),  # noqa: B008  # frozen
    scope: Tenants = TENANT,
) -> tuple[object, ...] | None:
    return queries.runs(scope, replace(options, page_token=token)).after


def test_a_token_continues_after_its_row() -> None:
    assert continued(token_for()) == (NOW, "run-1")


def test_a_token_of_the_first_release_still_continues() -> None:
    assert token_for() == FIRST_RELEASE
    assert queries.runs_by_state(RunState.QUEUED, 5, None).fingerprint == "1fd12a723ea2bbe8"


def test_a_token_is_canonical_json_in_base64url_without_padding() -> None:
    token = token_for()
    assert "=" not in token
    content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert (list(content), content["e"], content["k"], content["v"]) == (
        ["e", "f", "k", "v"],
        "runs",
        ["2025-10-26T14:05:00.123+00:00", "run-1"],
        1,
    )


@pytest.mark.parametrize(
    "changed",
    [
        RunQueryOptions(schedule_id="s"),
        RunQueryOptions(states=[RunState.QUEUED]),
        RunQueryOptions(ascending=True),
        RunQueryOptions(created_after=NOW),
        RunQueryOptions(created_before=NOW),
    ],
)
def test_a_token_of_other_filters_is_refused(changed: RunQueryOptions) -> None:
    with pytest.raises(ValidationError, match="another list"):
        continued(token_for(), changed)


@pytest.mark.parametrize("scope", [Tenant("u"), NO_TENANT, ALL_TENANTS], ids=repr)
def test_a_token_of_another_scope_is_refused(scope: Tenants) -> None:
    with pytest.raises(ValidationError, match="tenant"):
        continued(token_for(), scope=scope)


def test_the_limit_may_change_between_pages() -> None:
    assert continued(token_for(RunQueryOptions(limit=10)), RunQueryOptions(limit=20)) == (NOW, "run-1")


def test_the_order_of_states_does_not_matter() -> None:
    token = token_for(RunQueryOptions(states=[RunState.QUEUED, RunState.ERROR, RunState.QUEUED]))
    assert continued(token, RunQueryOptions(states=(RunState.ERROR, RunState.QUEUED))) is not None


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")))
def test_no_text_crashes_the_decoder(token: str) -> None:
    with pytest.raises(ValidationError):
        continued(token)


@pytest.mark.parametrize(
    "key", [[], ["x"], ["2025-10-26T14:05:00+00:00", 1], ["never", "run"], [None, "run"], "k"]
)
def test_a_token_with_a_forged_key_is_refused(key: object) -> None:
    query = queries.runs(TENANT, None)
    content = {"e": "runs", "f": query.fingerprint, "k": key, "v": 1}
    token = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    with pytest.raises(ValidationError, match="malformed"):
        continued(token)


def numbered(token: str | None = None) -> Query:
    order = (SortKey("amount", number=True, nullable=True), SortKey("number", number=True))
    return build_query(
        "counters", scope=ALL_TENANTS, where=(), order=order, limit=5, maximum=10, page_token=token
    )


@pytest.mark.parametrize("key", [(2**63 - 1, -(2**63)), (None, 0)])
def test_a_token_holds_numbers(key: tuple[int | None, int]) -> None:
    token = encode_token("counters", numbered().fingerprint, key)
    assert numbered(token).after == key


@pytest.mark.parametrize("key", [(2**63, 0), ("1", 0), (True, 0), (1.0, 0), (0, None)])
def test_a_token_with_what_is_no_number_is_refused(key: tuple[int, int]) -> None:
    token = encode_token("counters", numbered().fingerprint, key)
    with pytest.raises(ValidationError, match="malformed"):
        numbered(token)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "5"])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(ValidationError, match="limit"):
        build_query("runs", scope=TENANT, where=(), order=queries.OLDEST_RUNS, limit=limit, maximum=10)


def test_a_limit_above_the_maximum_is_refused_with_the_maximum() -> None:
    assert queries.runs(TENANT, RunQueryOptions(limit=200)).limit == 200
    with pytest.raises(ValidationError, match="from 1 to 200, not 201"):
        queries.runs(TENANT, RunQueryOptions(limit=201))


ROWS = tuple(make_run("acme", f"r{number}", created_at=at(number)) for number in range(5))


@dataclass
class Lists:
    """Lists of five rows, continued by options or by a token."""

    limits: list[int] = field(default_factory=list[int])

    def list(self, tenant: str, options: RunQueryOptions | None = None) -> Page[Run]:
        options = options or RunQueryOptions()
        self.limits.append(options.limit)
        return self.page(tenant, limit=options.limit, page_token=options.page_token)

    def page(self, tenant: str, *, limit: int = 2, page_token: str | None = None) -> Page[Run]:
        assert tenant == "acme"
        after = int(page_token or "0")
        end = after + limit
        return Page(ROWS[after:end], str(end) if end < len(ROWS) else None)

    async def awaited(self, tenant: str, *, page_token: str | None = None) -> Page[Run]:
        return self.page(tenant, page_token=page_token)

    def due(self, limit: int) -> Page[Run]:
        return Page(ROWS[:limit])


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 6])
def test_each_walks_all_pages_of_a_list_with_and_without_options(limit: int) -> None:
    lists = Lists()
    assert tuple(each(lists.list, "acme", RunQueryOptions(limit=limit))) == ROWS
    assert set(lists.limits) == {limit}
    assert tuple(each(lists.list, "acme", options=RunQueryOptions(limit=limit, page_token="3"))) == ROWS[3:]
    assert tuple(each(lists.page, "acme", limit=limit)) == ROWS
    assert tuple(each(lists.page, "acme")) == ROWS


def test_each_reads_a_page_only_when_its_rows_are_wanted() -> None:
    lists = Lists()
    assert next(each(lists.list, "acme", RunQueryOptions(limit=1))) == ROWS[0]
    assert lists.limits == [1]


def test_each_refuses_a_list_that_it_cannot_continue() -> None:
    lists = Lists()
    with pytest.raises(TypeError, match="pass a RunQueryOptions"):
        next(each(lists.list, "acme"))
    with pytest.raises(TypeError, match="page token"):
        next(each(lists.due, 2))
    with pytest.raises(TypeError, match="not tuple") as caught:
        next(each(ROWS))  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert ROWS[0].id not in str(caught.value)


def test_each_of_asyncio_walks_all_pages() -> None:
    async def walked() -> list[Run]:
        return [row async for row in aio.each(Lists().awaited, "acme")]

    assert tuple(asyncio.run(walked())) == ROWS


def test_a_page_that_ends_with_the_list_has_no_token_and_one_row_more_gives_one() -> None:
    query = numbered()
    pages = [query.page([*range(count)], int, lambda row: (row, row), str) for count in (5, 6)]
    assert [(len(page), page.next_page_token is None) for page in pages] == [(5, True), (5, False)]


def test_an_empty_filter_collection_matches_nothing_and_none_filters_nothing() -> None:
    assert queries.runs(TENANT, RunQueryOptions(states=())).matches_nothing
    assert not queries.runs(TENANT, RunQueryOptions(states=None)).matches_nothing


def test_a_page_is_an_immutable_sequence() -> None:
    page = Page((1, 2, 3), "token")
    assert (len(page), page[0], page[1:], list(page), 2 in page) == (3, 1, (2, 3), [1, 2, 3], True)
    with pytest.raises(AttributeError):
        setattr(page, "items", ())  # noqa: B010  # the checkers refuse the plain assignment


def test_a_row_that_is_passed_over_takes_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    reason = "a name is missing"
    error = undecodable(reason, entity="runs", key="line one\nline two " + "k" * 100_000, driver="none")
    row = undecodable_row(error, "t" * 1_000_000)
    assert (row.key, row.tenant) == (error.key, "t" * 1_000_000)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 1000
    assert len(error.message) < 1000
