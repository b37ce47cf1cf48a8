"""What a failure shows to an error recorder: its texts, and the variables of every frame it has left."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.traceback import Traceback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

PASSWORD: Final = "hunter2Zq9Kx"  # not a real one
MONGO: Final = f"mongodb://user:{PASSWORD}@127.0.0.1:1/db"
POSTGRES: Final = f"postgresql://user:{PASSWORD}@127.0.0.1:1/db"


def frames_of(error: BaseException) -> Iterator[tuple[str, str, object]]:
    """Yield place, name and value of every variable that a failure takes along, but for those of tests."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += (one.__cause__, one.__context__)
        yield "the error", "args", one.args
        yield "the error", "attributes", {name: str(value) for name, value in vars(one).items()}
        step: TracebackType | None = one.__traceback__
        while step is not None:
            code = step.tb_frame.f_code
            if "/tests/" not in code.co_filename:
                for name, value in step.tb_frame.f_locals.items():
                    yield f"{code.co_filename}:{step.tb_lineno} {code.co_name}", name, value
            step = step.tb_next


def recorded(error: BaseException) -> str:
    """Return what a tracker that shows variables makes of a failure."""
    output = io.StringIO()
    console = Console(file=output, width=2000)
    found = Traceback.from_exception(
        type(error),
        error,
        error.__traceback__,
        show_locals=True,
        locals_max_length=1_000,
        locals_max_string=100_000,
        suppress=[str(Path(__file__).parents[1])],
    )
    console.print(found)
    return output.getvalue()


def assert_hidden(error: BaseException) -> None:
    """No text of a failure, and no variable of a frame of it, shows the password."""
    leaks = [f"{place} {name}" for place, name, value in frames_of(error) if PASSWORD in repr(value)]
    assert not leaks
    assert PASSWORD not in f"{error} {error!r}"
    assert PASSWORD.encode() not in pickle.dumps(error)
