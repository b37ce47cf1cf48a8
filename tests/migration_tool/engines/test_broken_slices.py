"""A copy whose engine does what nobody expects ends with an error; it does not wait for ranges for ever."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.support.outages import eventually
from twinstore_backfill.copy.slices import Slices
from twinstore_backfill.engines.pool import Pool
from twinstore_backfill.engines.sites import Ticket
from twinstore_backfill.process.stopping import StopSwitch

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore_backfill.copy.worker import CopyContext


class AnswersOtherwise:
    """Answers every call with what is no result of a slice."""

    url = "none://"

    def slots(self) -> int:
        return 1

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # noqa: ANN401
        del function, arguments
        future = Future[Any]()
        future.set_result("something else")
        return future

    def close(self) -> None:
        """Nothing is open."""


def test_an_answer_that_is_no_result_stops_the_copy() -> None:
    context = cast("CopyContext", SimpleNamespace(stop=StopSwitch()))
    pool = Pool(AnswersOtherwise, "none")
    with Slices(pool, cast("Ticket", None), context) as slices:
        assert eventually(lambda: context.stop.requested)
    assert isinstance(slices.error, AttributeError)
