"""Programs made by hand, one node at a time, and what the library makes of documents by them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast

import bson

from twinstore.fast.library import fast_path
from twinstore.fast.nodes import Node, NodeField, NodeKind, Presence
from twinstore.fast.program import Program
from twinstore.fast.records import Identity, NativeDocuments, StoredSlot

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Mapping, Sequence

    from twinstore.catalog.entity import Entity

ANY_TEXT = Node(kind=NodeKind.TEXT)
LENGTHS = {0: 0, 2: 8, 3: 1, 4: 8, 6: 1, 7: 8}
FORMATS = {2: "<q", 3: "<?", 4: "<q", 6: "<B", 7: "<d"}


class NativeRows:
    """The documents of a program made by hand."""

    def __init__(self, program: Program, names: Sequence[str], identity: Identity = Identity.SLOT) -> None:
        """Take the stored names of the slots; that of ``_id`` is empty."""
        self.program = program
        self.documents = NativeDocuments(
            native_library(),
            program,
            identity,
            [StoredSlot(name) for name in names],
            versioned=True,
            skipped=("_a", "_note", "_version"),
        )

    def read(
        self, *documents: Mapping[str, Any] | bytes, rewritten: bool = False
    ) -> list[list[tuple[int, Any]] | None]:
        """Return the values of each packed row; ``None`` where a document is declined.

        ``rewritten``: no document holds what a copy of it does, so that none counts as accepted.
        """
        raws = [item if isinstance(item, bytes) else bson.encode(item) for item in documents]
        found = self.documents.read(b"".join(raws))
        assert found is not None
        declined = {at for at, _, _ in found.declined}
        slots = len(self.program.nodes[0].fields) + len(self.program.markers)
        rows = iter(packed_values(found.rows.tobytes(), slots))
        at, answers = 0, list["list[tuple[int, Any]] | None"]()
        for raw in raws:
            answers.append(None if at in declined else next(rows))
            assert self.documents.accepts(raw) is (answers[-1] is not None and not rewritten)
            at += len(raw)
        return answers


def native_library() -> ctypes.CDLL:
    """Return the library; a machine without one fails the test and says why."""
    found = fast_path()
    assert found.library is not None, str(found)
    return found.library


def program_with(nodes: Sequence[Node], **changes: Any) -> Program:  # noqa: ANN401  # attributes of a program
    """Return a program of which the first node is the model, and its first field the key."""
    values: dict[str, Any] = {"slots": (), "markers": (), "key": (0,), "root": 0, **changes}
    # The entity is for those who read it, and not for native code.
    return Program(entity=cast("Entity", None), nodes=tuple(nodes), **values)


def node_program(node: Node, *others: Node, presence: Presence = Presence.OPTIONAL) -> NativeRows:
    """Return documents with a key and one field ``v`` of a node; further nodes have the numbers from 3 on."""
    fields = (
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        NodeField(name="v", node=2, presence=presence),
    )
    nodes = (Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, node, *others)
    return NativeRows(program_with(nodes), ["", "v"])


def taken(node: Node, value: object, *others: Node) -> Any:  # noqa: ANN401  # a packed value
    """Return a value as it is packed by a node; ``None`` where the document that holds it is declined."""
    (row,) = node_program(node, *others).read({"_id": "k", "v": value})
    return None if row is None else row[1][1]


def packed_values(rows: bytes, slots: int) -> list[list[tuple[int, Any]]]:
    """Return the tags and values of packed rows."""
    found = list["list[tuple[int, Any]]"]()
    at = 0
    while at < len(rows):
        (size,) = struct.unpack_from("<I", rows, at)
        end, at = at + size, at + 4
        row = list["tuple[int, Any]"]()
        for _ in range(slots):
            tag, at = rows[at], at + 1
            length = LENGTHS.get(tag, -1)
            if length < 0:
                (length,) = struct.unpack_from("<I", rows, at)
                at += 4
            raw, at = rows[at : at + length], at + length
            row.append((tag, struct.unpack(FORMATS[tag], raw)[0] if tag in FORMATS else raw))
        assert at == end
        found.append(row)
    return found
