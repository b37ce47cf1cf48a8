"""The faults of ``make kit-faults`` fit the modules they are planted into, and the kit finds some of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from tests.kit.faults import ABOUT, ROOT, SAMPLE, Fault, faults

# A text of a function, one of a constant that another module has imported, and a function that is added.
FEW = (
    "children are seen by everybody",
    "a unit still sees what it has removed",
    "found by its key in every scope",
)


def source(fault: Fault) -> Path:
    """Return where the module is that a fault is planted into."""
    spec = find_spec(fault.module) if fault.module.startswith("twinstore.") else None
    found = SAMPLE / f"{fault.module.replace('.', '/')}.py" if spec is None else spec.origin
    assert found is not None
    return Path(found)


def test_every_fault_fits_the_source_of_its_module() -> None:
    for fault in faults():
        assert fault.hunks, fault.name
        compile(fault.applied(source(fault).read_text("utf-8")), fault.module, "exec")


def test_there_are_enough_of_each_class_and_no_two_of_one_name() -> None:
    number = Counter(fault.about for fault in faults())
    assert number.keys() == ABOUT.keys()
    assert min(number.values()) >= 6
    assert max(Counter(fault.name for fault in faults()).values()) == 1


def test_few_of_them_are_caught() -> None:
    command = [sys.executable, "-m", "tests.kit.faults", "--kit", "TestAccess"]
    chosen = [word for name in FEW for word in ("--only", name)]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1].split()) == (0, ["all", "3", "of", "3"]), done
