"""Faults for the sample driver: those that an early kit overlooked, and the cases that must find each today.

A fault is a replacement of text in a copy of ``samples/own_driver``. What such a driver takes from core is
tried by the unit tests of the kit, with faults in the memory driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MUTANTS", "Mutant"]

UNIT: Final = "twinstore_sqlite/unit.py"
FILE: Final = "twinstore_sqlite/file.py"
BACKEND: Final = "twinstore_sqlite/backend.py"
PLUGIN: Final = "twinstore_sqlite/plugin.py"
PROBE: Final = "tests/deployment.py"
SELECT: Final = "return list(self._rows(entity, TABLE.select(entity, query, self._source)))"
WRITE: Final = "self._put(*TABLE.place(row.entity, row.key), *TABLE.values(row), uuid4().hex)"
DECLARED: Final = "    cross_process_locks=True,\n"
COMPARED: Final = "if any(self._version(place) != version for place, version in self._held.items()):"
RECORDED: Final = (
    "return {name: AppliedScript(checksum, datetime.fromisoformat(at)) for name, checksum, at in rows}"
)
UNAVAILABLE: Final = 'UnavailableError(f"The file cannot be used ({type(error).__name__}).", driver=DRIVER)'
CLAIM: Final = "self._file.locks.acquire(self, place, isolated=self._isolated)"
SECONDS: Final = """import re
        from dataclasses import replace
        statement = TABLE.select(entity, query, self._source)
        whole = [re.sub(r"[.]\\d{3}[+]", "+", i) if isinstance(i, str) else i for i in statement.values]
        return list(self._rows(entity, replace(statement, values=tuple(whole))))"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and which cases of the kit are to find it.

    Attributes:
        name: what is wrong, in words.
        cases: chooses tests, as ``pytest -k`` has it.
        file: where the text is.
        old: a text that is there once.
        new: what stands there instead.
    """

    name: str
    cases: str
    file: str
    old: str
    new: str


def declaring(name: str, cases: str) -> Mutant:
    """Return the fault that something is declared and not there."""
    return Mutant(f"declares {name}", cases, BACKEND, DECLARED, f"{DECLARED}    {name}=True,\n")


MUTANTS: Final = (
    # Units of work and copies.
    Mutant(
        "a copy commits row by row",
        "test_a_failure_after_everything_was_written or test_what_was_not_committed",
        UNIT,
        WRITE,
        f'{WRITE}\n        if not self._isolated:\n            for statement in ("BEGIN IMMEDIATE", *MOVE):\n'
        "                self._execute(statement)\n            self._held = {}",
    ),
    Mutant(
        "the fence of a lease stays as it was",
        "test_a_worker_of_the_same_name or test_the_lease_belongs_to_one_holder",
        UNIT,
        WRITE,
        "import re\n        values = [re.sub(r'\"fence\":\\d+', '\"fence\":1', i)\n"
        "                  for i in TABLE.values(row)]\n"
        "        self._put(*TABLE.place(row.entity, row.key), *values, uuid4().hex)",
    ),
    Mutant(
        "rows are neither claimed nor compared when they are written",
        "TestScheduler and (in_every_round or rival)",
        UNIT,
        f"            {CLAIM}\n            self._held[place] = self._version(place)",
        "            self._held[place] = None",
    ),
    Mutant(
        "units of callers wait for each other's rows and then overwrite them",
        "TestScheduler and (test_a_write_of_a_row_that_was_changed or test_what_many_threads_read)",
        UNIT,
        COMPARED,
        "if not self._held:",
    ),
    Mutant(
        "a key that another process took is replaced",
        "test_writers_of_other_processes",
        UNIT,
        COMPARED,
        "if self._isolated and not self._held:",
    ),
    Mutant(
        "of two open units the second writer wins",
        "test_of_two_open_units_that_write_one_row",
        UNIT,
        CLAIM,
        "pass",
    ),
    Mutant(
        "an isolated unit reads whatever is committed",
        "test_a_unit_reads_one_state or test_a_read_only_unit_reads_one_state",
        UNIT,
        '                self._opened.execute("BEGIN")',
        "                pass",
    ),
    Mutant(
        "a joined call that fails leaves its half",
        "test_a_joined_write_that_fails",
        UNIT,
        'self._execute("ROLLBACK TO part")',
        "pass",
    ),
    Mutant(
        "joining commits what the caller did before",
        "test_joining_again_commits_nothing",
        UNIT,
        '            self._execute("BEGIN IMMEDIATE")  # or',
        "            pass  # or",
    ),
    # Instants, text, order.
    Mutant(
        "filters and tokens compare whole seconds", "millisecond or all_pages_make", UNIT, SELECT, SECONDS
    ),
    Mutant(
        "markers keep whole seconds",
        "test_the_instants_of_a_deletion",
        UNIT,
        WRITE,
        "import re\n        document, markers, derived = TABLE.values(row)\n"
        '        markers = re.sub(r"[.]\\d{3}[+]", "+", markers)\n'
        "        self._put(*TABLE.place(row.entity, row.key), document, markers, derived, uuid4().hex)",
    ),
    Mutant(
        "the clock shows whole seconds",
        "test_a_clock_outside_the_client",
        UNIT,
        "return self._file.clock.now()",
        "return self._file.clock.now().replace(microsecond=0)",
    ),
    Mutant(
        "keys are normalised when they are looked up",
        "TestScheduler and (test_ids_that or spelt or composition or lookalike or key)",
        UNIT,
        SELECT,
        "from unicodedata import normalize\n        statement = TABLE.select(entity, query, self._source)\n"
        '        values = [normalize("NFC", i) if isinstance(i, str) else i for i in statement.values]\n'
        "        return list(self._rows(entity, type(statement)(statement.text, tuple(values))))",
    ),
    Mutant(
        "a token repeats the last row",
        "TestScheduler and test_all_pages_make",
        UNIT,
        SELECT,
        "statement = TABLE.select(entity, query, self._source)\n"
        '        text = statement.text.replace(" > ?", " >= ?").replace(" < ?", " <= ?")\n'
        "        return list(self._rows(entity, type(statement)(text, statement.values)))",
    ),
    Mutant(
        "a purge begins with the newest",
        "test_a_purge_removes_the_oldest_first",
        UNIT,
        SELECT,
        "statement = TABLE.select(entity, query, self._source)\n"
        '        text = statement.text if query.fingerprint else statement.text.replace(" ASC", " DESC")\n'
        "        return list(self._rows(entity, type(statement)(text, statement.values)))",
    ),
    Mutant(
        "a purge takes everything at once",
        "test_a_purge_removes_the_oldest_first",
        BACKEND,
        "    @property\n    @override\n    def bulk",
        "    @override\n    def access_by(self, steps, scope):\n        from dataclasses import replace\n"
        "        access = super().access_by(steps, scope)\n        remove = access.remove\n"
        "        access.remove = lambda entity, query: remove(entity, replace(query, limit=1000))\n"
        "        return access\n\n    @property\n    @override\n    def bulk",
    ),
    Mutant(
        "lists without a token are in no order",
        "test_ranges_are_planned_once_and_kept_in_order or test_long_lines",
        UNIT,
        SELECT,
        "rows = list(self._rows(entity, TABLE.select(entity, query, self._source)))\n"
        "        return rows if query.fingerprint else rows[::-1]",
    ),
    Mutant(
        "a broken row is built upon",
        "test_a_broken_row_is_replaced_as_a_whole",
        UNIT,
        WRITE,
        "import json\n        found = self.get(row.entity, row.key)\n"
        "        document, markers, derived = TABLE.values(row)\n"
        "        if found is not None:\n"
        '            kept = {n: v for n, v in found.document.items() if n == "foreign"}\n'
        "            document = json.dumps({**json.loads(document), **kept})\n"
        "        self._put(*TABLE.place(row.entity, row.key), document, markers, derived, uuid4().hex)",
    ),
    # What is declared.
    declaring("server_ttl", "test_expired_rows_are_removed"),
    declaring("row_level_security", "test_the_server_checks_the_tenant"),
    declaring("server_clock", "test_a_clock_outside_the_client"),
    declaring("change_stream", "test_changes_can_be_followed"),
    declaring("point_in_time_reads", "test_reads_of_the_past"),
    Mutant(
        "hides that it keeps other processes out", "test_writers_of_other_processes", BACKEND, DECLARED, ""
    ),
    Mutant(
        "has no name",
        "test_the_declaration_names_the_driver",
        BACKEND,
        "    backend=DRIVER",
        '    backend=""',
    ),
    Mutant(
        "knows no way out",
        "test_the_declaration_names_the_driver",
        BACKEND,
        '    remedy="Use the driver of a server; this one keeps everything in a file.",\n',
        '    remedy=" ",\n',
    ),
    # Errors.
    Mutant(
        "a missing schema is an outage",
        "test_a_call_without_schema",
        FILE,
        'return MigrationError("The file has no schema yet. Run: twinstore migrate run", driver=DRIVER)',
        f"return {UNAVAILABLE}",
    ),
    Mutant(
        "errors hide their cause",
        "test_a_store_out_of_reach",
        FILE,
        "raise meaning(error) from error",
        "raise meaning(error) from None",
    ),
    Mutant(
        "errors of SQLite get out",
        "test_a_store_out_of_reach",
        FILE,
        "raise meaning(error) from error",
        "raise",
    ),
    Mutant(
        "a broken row is a ValueError",
        "test_a_row_of_another_form",
        UNIT,
        "                yield row_of_json(entity, *row)",
        '                if "foreign" in row[0]:\n                    raise ValueError(row[0])\n'
        "                yield row_of_json(entity, *row)",
    ),
    Mutant(
        "a message repeats what SQLite said",
        "test_a_taken_value_is_told",
        UNIT,
        "        place = TABLE.place(entity, key)\n        if place",
        "        place = TABLE.place(entity, key)\n        if not self._isolated and self._version(place):\n"
        "            from twinstore.errors import DuplicateError\n"
        '            said = "UNIQUE constraint failed: rows.key"\n'
        "            raise DuplicateError(said, driver=DRIVER) from sqlite3.IntegrityError(said)\n"
        "        if place",
    ),
    # Migrations.
    Mutant(
        "a changed migration goes unnoticed",
        "test_a_changed_or_newer_migration",
        BACKEND,
        RECORDED,
        "shipped = {script.name: script.checksum for script in self._scripts}\n"
        "        return {name: AppliedScript(shipped.get(name, checksum)) for name, checksum, at in rows}",
    ),
    Mutant(
        "a newer migration goes unnoticed",
        "test_a_changed_or_newer_migration",
        BACKEND,
        RECORDED,
        "shipped = {script.name for script in self._scripts}\n"
        "        return {name: AppliedScript(checksum) for name, checksum, at in rows if name in shipped}",
    ),
    Mutant(
        "to look at the migrations makes a table",
        "test_looking_changes_nothing",
        BACKEND,
        '            known = has_table(connection, "schema_migrations")',
        "            known = connection.execute(LEDGER) is not None",
    ),
    # Resources.
    Mutant(
        "a call leaves its connection open",
        "test_no_call_leaves_a_connection_open",
        UNIT,
        "            self._opened.close()\n",
        '            self._file.__dict__.setdefault("leaked", []).append(self._opened)\n',
    ),
    Mutant(
        "a closed storage goes on",
        "test_a_closed_storage_refuses",
        BACKEND,
        "    @property\n    @override\n    def bulk",
        "    def close(self):\n        pass\n\n    @property\n    @override\n    def bulk",
    ),
    # The plug-in and the probe.
    Mutant(
        "the driver describes itself by another name",
        "test_the_driver_is_installed_under",
        PLUGIN,
        'name="SQLite"',
        'name="Sqlite3"',
    ),
    Mutant(
        "the requirements are one text",
        "test_the_description_of_the_driver",
        PLUGIN,
        'requires=("sqlite3",)',
        'requires="sqlite3"',
    ),
    Mutant(
        "the driver was written for the first interface",
        "test_the_driver_is_installed_under",
        PLUGIN,
        "api_version=2",
        "api_version=1",
    ),
    Mutant(
        "the probe has no stamp",
        "test_the_probe_reads_counts_and_stamps or test_a_second_import_writes_nothing",
        PROBE,
        "return rows[0][0] if rows else None",
        "return None",
    ),
)
