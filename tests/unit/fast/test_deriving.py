"""Whatever a program does not know of a model keeps the entity on the exact way, and says so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NewType, Self
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    WrapValidator,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import override

from tests.unit.fast.test_copy_rows import check, expected, sent, stored, written
from twinstore.catalog.conditions import AtMost, IsPresent, OneOf
from twinstore.catalog.entity import CopyPolicy, Derived, Entity, Marker, Retention
from twinstore.catalog.keys import int64, text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy
from twinstore.fast.constraints import UnrecognisedError
from twinstore.fast.derive import Deriver
from twinstore.fast.nodes import NodeKind, Presence, TextFlag
from twinstore.fast.program import NoProgram, Program, program_of
from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Ordered, Unique
from twinstore.models.fields import (
    Count,
    Flag,
    FreeList,
    FreeObject,
    Id,
    Int64,
    Number,
    OptionalText,
    StringSet,
    TenantId,
    Text,
    TextMap,
    Timestamp,
    WholeNumber,
    empty_to_none,
    is_empty,
    parse_timestamp,
    string_set,
)
from twinstore.models.rules import (
    EqualOrAbsent,
    FieldAtMost,
    FieldDerived,
    PresentIn,
    filled_from,
    when_missing,
)
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from twinstore.fast.nodes import Node, NodeField


class Plain(CanonicalModel):
    """The least that is an entity."""

    id: Id


def entity_of(model: type[CanonicalModel], **changes: Any) -> Entity[Any]:  # noqa: ANN401  # attributes of an entity
    values: dict[str, Any] = {
        "name": "things",
        "singular": "thing",
        "module": "test",
        "model": model,
        "key_parts": (text("id"),),
        "tenancy": Tenancy.none(),
        "group": "things",
        **changes,
    }
    return Entity(**values)


def program_for(model: type[CanonicalModel], **changes: Any) -> Program:  # noqa: ANN401  # as above
    found = program_of(entity_of(model, **changes))
    assert isinstance(found, Program), str(found)
    return found


def reason_for(model: type[CanonicalModel], **changes: Any) -> str:  # noqa: ANN401  # as above
    found = program_of(entity_of(model, **changes))
    assert isinstance(found, NoProgram)
    return found.reason


def field_of(model: type[CanonicalModel], name: str) -> tuple[NodeField, Node]:
    program = program_for(model)
    (field,) = (item for item in program.nodes[program.root].fields if item.name == name)
    return field, program.nodes[field.node]


def with_field(annotation: object, **field: Any) -> type[CanonicalModel]:  # noqa: ANN401  # arguments of Field
    """Return the plain model with one field more."""
    return type(
        "Probe",
        (Plain,),
        {"__annotations__": {"probe": annotation}, "probe": Field(**field), "__module__": __name__},
    )


def upper(value: str) -> str:
    return value.upper()


def same(value: object) -> object:
    return value


class Loud(str):
    """A text of a subclass."""

    __slots__ = ()


class Numbers(IntEnum):
    """An enumeration of numbers."""

    ONE = 1


class Own(StrEnum):
    """An enumeration that says itself how it is read."""

    ONE = "one"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:  # noqa: ANN401  # as pydantic has it
        return handler(source)


class Odd(StrEnum):
    """An enumeration whose values are not the texts that its members are."""

    ONE = "one"

    def __new__(cls, value: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value * 2
        return member


class OtherBase(BaseModel):
    """A nested model that is none of ours."""

    label: str = ""


@dataclass
class Record:
    """A class of the standard library."""

    label: str = ""


Named = NewType("Named", str)


@dataclass(frozen=True)
class Unknown:
    """Metadata of a user's module."""


class WiderNumber(WholeNumber):
    """A constraint below a known one."""


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(Annotated[str, Unknown()], id="unknown metadata"),
        pytest.param(Annotated[str, AfterValidator(upper)], id="after validator"),
        pytest.param(Annotated[str, BeforeValidator(same)], id="before validator"),
        pytest.param(
            Annotated[str, WrapValidator(lambda value, handler: handler(value))], id="wrap validator"
        ),
        pytest.param(Annotated[str, PlainValidator(same)], id="plain validator"),
        pytest.param(Annotated[str, PlainSerializer(upper)], id="serializer of a text"),
        pytest.param(Annotated[int, PlainSerializer(str)], id="serializer of a number"),
        pytest.param(Annotated[Text, AfterValidator(same)], id="validator behind a known type"),
        pytest.param(Annotated[Timestamp, AfterValidator(same)], id="validator behind an instant"),
        pytest.param(Annotated[datetime, PlainValidator(parse_timestamp)], id="part of an instant"),
        pytest.param(datetime, id="plain instant"),
        pytest.param(date, id="day"),
        pytest.param(Decimal, id="decimal"),
        pytest.param(float, id="plain float"),
        pytest.param(bytes, id="bytes"),
        pytest.param(UUID, id="uuid"),
        pytest.param(Any, id="any"),
        pytest.param(object, id="object"),
        pytest.param(Literal["a", "b"], id="literal"),
        pytest.param(Named, id="new type"),
        pytest.param(Annotated[str, StringConstraints(pattern=r"^a+$")], id="unknown pattern"),
        pytest.param(
            Annotated[str, StringConstraints(pattern=re.compile(r"^[^\x00]*$"))], id="compiled pattern"
        ),
        pytest.param(Annotated[str, StringConstraints(min_length=2)], id="least length"),
        pytest.param(Annotated[str, StringConstraints(to_upper=True)], id="upper case"),
        pytest.param(Annotated[str, Field(min_length=2)], id="least length by Field"),
        pytest.param(Annotated[int, Field(multiple_of=5)], id="multiple"),
        pytest.param(Annotated[int, WiderNumber()], id="subclass of a constraint"),
        pytest.param(Annotated[bool, AfterValidator(same)], id="validator of a flag"),
        pytest.param(Numbers, id="enumeration of numbers"),
        pytest.param(Own, id="enumeration with a schema of its own"),
        pytest.param(Odd, id="enumeration with other values"),
        pytest.param(Annotated[Own, AfterValidator(same)], id="validator of an enumeration"),
        pytest.param(OtherBase, id="model of another base"),
        pytest.param(Record, id="dataclass"),
        pytest.param(list[str], id="list"),
        pytest.param(FreeList, id="list of free JSON"),
        pytest.param(set[str], id="set"),
        pytest.param(frozenset[str], id="frozen set"),
        pytest.param(tuple[str, str], id="tuple of two"),
        pytest.param(tuple[str | None, ...], id="list of optional texts"),
        pytest.param(Annotated[tuple[str, ...], AfterValidator(same)], id="validator of a list"),
        pytest.param(Annotated[tuple[str, ...], Field(max_length=3)], id="length of a list"),
        pytest.param(Annotated[tuple[int, ...], AfterValidator(string_set)], id="set of numbers"),
        pytest.param(Annotated[StringSet, AfterValidator(same)], id="validator behind a set"),
        pytest.param(dict[int, str], id="map of numbers"),
        pytest.param(dict[str, str | None], id="map to optional texts"),
        pytest.param(dict[str, Any], id="map to anything"),
        pytest.param(Annotated[dict[str, str], AfterValidator(same)], id="validator of a map"),
        pytest.param(Annotated[TextMap, AfterValidator(same)], id="validator behind a map"),
        pytest.param(Annotated[FreeObject, AfterValidator(same)], id="validator behind free JSON"),
        pytest.param(str | int, id="union"),
        pytest.param(Annotated[int | None, AfterValidator(empty_to_none)], id="emptied number"),
        pytest.param(Annotated[str | None, AfterValidator(same)], id="validator around a union"),
        pytest.param(
            Annotated[tuple[Plain, ...], Ordered(by=("id",)), AfterValidator(same)], id="ordered and more"
        ),
    ],
)
def test_a_type_that_no_program_knows_is_none(annotation: object) -> None:
    # Not by an entity: some of these have no form in any store.
    with pytest.raises(UnrecognisedError, match=r"^the field probe of Probe "):
        Deriver().model(with_field(annotation))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"default": "", "exclude": True}, id="excluded"),
        pytest.param(
            {"default": "", "exclude_if": lambda value: not value}, id="left out by a function of its own"
        ),
        pytest.param({"default": "a", "exclude_if": is_empty}, id="left out with another default"),
        pytest.param({"exclude_if": is_empty}, id="left out without a default"),
        pytest.param({"default": "", "exclude_if": is_empty}, id="left out text"),
        pytest.param({"validation_alias": "other"}, id="read under another name"),
        pytest.param({"validation_alias": AliasChoices("other", "more")}, id="read under others"),
        pytest.param(
            {"validation_alias": AliasChoices("probe", AliasPath("id", 0))}, id="read out of another"
        ),
        pytest.param(
            {"validation_alias": AliasChoices("id", "probe")}, id="read under the name of another field"
        ),
        pytest.param({"serialization_alias": "other"}, id="written under another name"),
    ],
)
def test_a_field_that_no_program_knows_is_none(arguments: dict[str, Any]) -> None:
    assert reason_for(with_field(str, **arguments)).startswith("the field ")


@pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")
def test_a_field_inside_an_annotation_may_say_constraints_alone() -> None:
    program = program_for(with_field(tuple[Annotated[int, Field(strict=True, ge=3, lt=9)], ...]))
    assert [(node.low, node.high) for node in program.nodes if node.kind is NodeKind.INT] == [(3, 8)]
    others: tuple[dict[str, Any], ...] = (
        {"default": 3},
        {"exclude": True},
        {"alias": "x"},
        {"exclude_if": is_empty},
    )
    for more in others:
        assert "probe" in reason_for(with_field(tuple[Annotated[int, Field(**more)], ...]))


class WithFieldValidator(Plain):
    @field_validator("id")
    @classmethod
    def look(cls, value: str) -> str:
        return value


class WithFieldSerializer(Plain):
    @field_serializer("id")
    def write(self, value: str) -> str:
        return value


class WithModelSerializer(Plain):
    @model_serializer(mode="plain")
    def write(self) -> dict[str, str]:
        return {"id": self.id}


class WithComputedField(Plain):
    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def twice(self) -> str:
        return self.id * 2


class WithModelValidatorAfter(Plain):
    @model_validator(mode="after")
    def look(self) -> WithModelValidatorAfter:
        return self


class WithModelValidatorBefore(Plain):
    @model_validator(mode="before")
    @classmethod
    def look(cls, data: object) -> object:
        return data


class WithKeeperOfItsOwn(Plain):
    @model_validator(mode="after")
    def _keep_rules(self) -> Self:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        return self


class WithOtherCase(Plain):
    model_config = ConfigDict(str_to_upper=True)


class WithTrimming(Plain):
    model_config = ConfigDict(str_strip_whitespace=True)


class WithExtra(Plain):
    model_config = ConfigDict(extra="allow")


class WithEnumValues(Plain):
    model_config = ConfigDict(use_enum_values=True)


class WithStrict(Plain):
    model_config = ConfigDict(strict=True)


class WithConstructor(Plain):
    def __init__(self, **values: Any) -> None:  # noqa: ANN401  # any fields
        super().__init__(**values)


class WithPostInit(Plain):
    @override
    def model_post_init(self, context: object, /) -> None:
        del context


class WithPrivateAttribute(Plain):
    _seen: int = PrivateAttr(default=0)


class WithWire(Plain):
    @override
    def wire(self) -> dict[str, object]:
        return {}


class WithSchema(Plain):
    @classmethod
    @override
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        return handler(source)


class Mixin:
    def model_post_init(self, context: object, /) -> None:
        del context


class WithMixin(Mixin, Plain):
    pass


class BareMixin:
    @field_validator("id", check_fields=False)
    @classmethod
    def look(cls, value: str) -> str:
        return value


class WithValidatorOfMixin(BareMixin, Plain):
    pass


class OtherModel(BaseModel, frozen=True):
    @field_validator("id", check_fields=False)
    @classmethod
    def look(cls, value: str) -> str:
        return value


class WithOtherModel(Plain, OtherModel):
    pass


class BelowValidator(WithFieldValidator):
    pass


class WithFunction(Plain):
    rules = (FieldDerived("id", source="id", function=same, code="same", message="it should be the same"),)


@dataclass(frozen=True, slots=True)
class Stricter(FieldAtMost):
    """A rule below a known one."""


class WithRuleBelow(Plain):
    low: Count = 0
    high: Count = 0

    rules = (Stricter("low", limit="high", code="low", message="low should not exceed high"),)


class WithRuleAboutNumbers(Plain):
    low: Count = 0
    high: Count | None = None

    rules = (EqualOrAbsent("high", other="low", code="high", message="high should be low"),)


class Itself(Plain):
    inner: Itself | None = None


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (WithFieldValidator, "look"),
        (WithFieldSerializer, "write"),
        (WithModelSerializer, "write"),
        (WithComputedField, "twice"),
        (WithModelValidatorAfter, "look"),
        (WithModelValidatorBefore, "look"),
        (WithKeeperOfItsOwn, "_keep_rules"),
        (WithOtherCase, "str_to_upper"),
        (WithTrimming, "str_strip_whitespace"),
        (WithExtra, "extra"),
        (WithEnumValues, "use_enum_values"),
        (WithStrict, "strict"),
        (WithConstructor, "__init__"),
        (WithPostInit, "model_post_init"),
        (WithPrivateAttribute, "model_post_init"),
        (WithWire, "wire"),
        (WithSchema, "__get_pydantic_core_schema__"),
        (WithMixin, "model_post_init"),
        (WithValidatorOfMixin, "look"),
        (WithOtherModel, "OtherModel"),
        (BelowValidator, "look"),
        (WithFunction, "FieldDerived"),
        (WithRuleBelow, "Stricter"),
        (WithRuleAboutNumbers, "high"),
        (Itself, "holds itself"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_class_that_does_more_than_its_fields_say_has_no_program(
    model: type[CanonicalModel], word: str
) -> None:
    assert word in reason_for(model)
    # Nested it is no better.
    assert word in reason_for(with_field(model | None, default=None))


def test_rules_that_are_set_later_are_no_program() -> None:
    class Late(Plain):
        low: Count = 0
        high: Count = 0

    Late.rules = (FieldAtMost("low", limit="high", code="low", message="low should not exceed high"),)
    assert "rules that it does not keep" in reason_for(Late)


def test_a_property_that_is_remembered_changes_nothing() -> None:
    class Remembering(Plain):
        @cached_property
        def twice(self) -> str:
            return self.id * 2

    assert program_for(Remembering).slots == program_for(Plain).slots


def test_what_is_asked_about_absent_names_alone_makes_them_needed() -> None:
    class Supplied(Plain):
        label: Text = "none"

        @model_validator(mode="before")
        @classmethod
        @when_missing("label")
        def supply(cls, values: dict[str, object]) -> object:
            return {"label": "made", **values}

    assert Supplied.model_validate({"id": "a"}).label == "made"
    assert Supplied.model_validate({"id": "a", "label": "b"}).label == "b"
    assert field_of(Supplied, "label")[0].presence is Presence.REQUIRED


class Inner(CanonicalModel):
    """A nested model with a default of each kind."""

    label: Text = "plain"
    owner: TenantId | None = None


@pytest.mark.parametrize(
    ("annotation", "arguments", "presence", "default"),
    [
        (Text, {}, Presence.REQUIRED, b""),
        (Text | None, {"default": None}, Presence.OPTIONAL, b""),
        (Text | None, {}, Presence.REQUIRED, b""),
        (Text, {"default": 'a"é'}, Presence.DEFAULT, '"a\\"é"'.encode()),
        (Text, {"default": "a\x00"}, Presence.REQUIRED, b""),
        (Text, {"default": Loud("a")}, Presence.REQUIRED, b""),
        (Text, {"default": None}, Presence.REQUIRED, b""),
        (Text, {"default": 3}, Presence.REQUIRED, b""),
        (Text, {"default_factory": str}, Presence.REQUIRED, b""),
        (Text, {"default": "a", "validate_default": True}, Presence.REQUIRED, b""),
        (Count, {"default": 7}, Presence.DEFAULT, b"7"),
        (Count, {"default": 2**64}, Presence.REQUIRED, b""),
        (Count, {"default": True}, Presence.REQUIRED, b""),
        (Count, {"default": 0, "exclude_if": is_empty}, Presence.DEFAULT, b"0"),
        (Flag, {"default": True}, Presence.DEFAULT, b"true"),
        (Flag | None, {"default": False}, Presence.DEFAULT, b"false"),
        (StringSet, {"default": ()}, Presence.DEFAULT, b"[]"),
        (StringSet, {"default": ("a",)}, Presence.REQUIRED, b""),
        (StringSet, {"default_factory": tuple}, Presence.REQUIRED, b""),
        (TextMap, {"default_factory": dict}, Presence.DEFAULT, b"{}"),
        (TextMap, {"default": {}}, Presence.REQUIRED, b""),
        (FreeObject, {"default_factory": dict}, Presence.DEFAULT, b"{}"),
        (Inner, {"default": Inner()}, Presence.DEFAULT, b'{"label":"plain"}'),
        (OptionalText, {"default": None}, Presence.OPTIONAL, b""),
    ],
)
def test_what_an_absent_field_means(
    annotation: object, arguments: dict[str, Any], presence: Presence, default: bytes
) -> None:
    field, _ = field_of(with_field(annotation, **arguments), "probe")
    assert (field.presence, field.default) == (presence, default)
    assert field.left_out is ("exclude_if" in arguments)


def test_a_default_that_follows_from_another_field_is_left_to_the_model() -> None:
    class Following(Plain):
        label: Text = filled_from("id")

    assert field_of(Following, "label")[0].presence is Presence.REQUIRED


def test_a_rule_needs_the_objects_on_its_way() -> None:
    class Outer(Plain):
        tenant_id: TenantId
        inner: Inner = Inner()
        rules = (
            EqualOrAbsent("inner.owner", other="tenant_id", code="owner", message="it should be the owner"),
        )

    assert field_of(Outer, "inner")[0].presence is Presence.REQUIRED


def test_a_rule_about_presence_needs_what_has_a_default() -> None:
    class State(StrEnum):
        OPEN = "open"
        DONE = "done"

    class Outer(Plain):
        state: State = State.OPEN
        label: Text | None = "a"
        rules = (
            PresentIn("label", by="state", members=(State.DONE,), code="label", message="it should be there"),
        )

    assert field_of(Outer, "label")[0].presence is Presence.REQUIRED
    field, _ = field_of(Outer, "state")
    assert (field.presence, field.number) == (Presence.DEFAULT, 0)


def test_the_fields_that_order_a_list_are_needed() -> None:
    class Entry(CanonicalModel):
        label: Text = "a"
        rank: Count = 0

    class Outer(Plain):
        entries: Annotated[
            tuple[Entry, ...],
            Ordered(
                by=("rank",), unique=Unique(field="label", code="label", message="it should be there once")
            ),
        ] = ()

    program = program_for(Outer)
    _, node = field_of(Outer, "entries")
    entry = program.nodes[node.item]
    assert [field.presence for field in entry.fields] == [Presence.REQUIRED, Presence.REQUIRED]
    assert (node.distinct, node.unique) == (0, False)


class Owned(Plain):
    """A row with a role for each field."""

    tenant_id: Text
    label: Text = ""
    size: Count = 0
    ended_at: Timestamp | None = None


OWNED: Final[dict[str, Any]] = {"tenancy": Tenancy.required()}


def slot_node(program: Program, name: str) -> Node:
    (slot,) = (slot for slot in program.slots if slot.name == name)
    return program.nodes[slot.node]


def test_a_description_narrows_its_fields() -> None:
    program = program_for(Owned, **OWNED, filled=("label",), narrow=("size",))
    assert slot_node(program, "tenantId").flags & TextFlag.TENANT
    assert slot_node(program, "tenantId").high == 256
    assert slot_node(program, "label").flags & TextFlag.NONEMPTY
    assert (slot_node(program, "size").low, slot_node(program, "size").high) == (0, 2**31 - 1)
    assert program.tenant == 1
    assert not program.tenant_may_lack


def test_a_long_key_is_declined() -> None:
    program = program_for(with_field(Text), key_parts=(text("probe"), text("id")))
    assert slot_node(program, "probe").high == 4096
    assert program.key == (1, 0)


def test_markers_are_slots_behind_the_fields() -> None:
    program = program_for(
        Plain,
        storage=(Marker(name="seq", kind=Kind.INTEGER), Marker(name="at", kind=Kind.INSTANT, required=True)),
    )
    assert [(slot.name, slot.is_marker, slot.kind) for slot in program.slots] == [
        ("id", False, NodeKind.TEXT),
        ("seq", True, NodeKind.INT),
        ("at", True, NodeKind.INSTANT),
    ]
    assert [marker.required for marker in program.markers] == [False, True]


def computed(model: CanonicalModel, storage: object) -> object:
    return (model, storage)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"copy_policy": CopyPolicy.LEFT_OUT}, "skipped"),
        ({"local_keys": (("a",),)}, "stored separately"),
        ({"derived": (Derived(name="digest", kind=Kind.TEXT, value=computed),)}, "digest"),
        ({"storage": (Marker(name="id"),)}, "one name"),
        ({"key_parts": (int64("id"),)}, "not an integer"),
    ],
)
def test_an_entity_whose_rows_are_more_than_their_model_has_no_program(
    changes: dict[str, Any], word: str
) -> None:
    assert word in reason_for(Plain, **changes)


class Phase(StrEnum):
    """The place of a row."""

    OPEN = "open"
    DONE = "done"
    GONE = "gone"


class Ending(Plain):
    """A row that ends."""

    phase: Phase = Phase.OPEN
    size: Count = 0
    ended_at: Timestamp | None = None


def test_conditions_of_removal_become_positions() -> None:
    where = (OneOf("phase", ("gone", "done", "other")), IsPresent("endedAt"))
    program = program_for(Ending, retention=Retention(field="endedAt", option="days", where=where))
    assert program.expires == 3
    assert [(item.slot, item.numbers) for item in program.expiry_conditions] == [(1, (1, 2)), (3, ())]
    assert not program.exact_retention


@pytest.mark.parametrize("where", [AtMost("size", 3), OneOf("phase", ()), OneOf("id", ("a",))])
def test_conditions_that_no_program_evaluates_are_left_to_the_description(where: Any) -> None:  # noqa: ANN401  # any
    program = program_for(Ending, retention=Retention(field="endedAt", option="days", where=(where,)))
    assert program.exact_retention
    assert (program.expires, program.expiry_conditions) == (None, ())


def test_what_pydantic_keeps_about_a_field_is_what_is_read() -> None:
    assert {item.name for item in StringConstraints.__dataclass_fields__.values()} == {
        "strip_whitespace",
        "to_upper",
        "to_lower",
        "strict",
        "min_length",
        "max_length",
        "pattern",
        "ascii_only",
    }


class Part(CanonicalModel):
    """A nested model with a floating-point number."""

    share: Number | None = None


class Whole(CanonicalModel):
    """A row with maps and lists of it."""

    id: Id
    tenant_id: TenantId
    counts: dict[Text, Int64] = Field(default_factory=dict)
    named: dict[Text, Part] = Field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    shares: tuple[Number, ...] = ()


WHOLES: Entity[Whole] = Entity(
    name="wholes",
    singular="whole",
    module="users",
    model=Whole,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="users",
)


def document(**values: Any) -> bytes:  # noqa: ANN401  # the fields of a model
    return stored(WHOLES, Row(Whole(id="one", tenant_id="acme", **values)))


def test_a_map_whose_order_the_model_keeps_becomes_the_same_document() -> None:
    assert check(WHOLES, sent(WHOLES, document(counts={"a": 1, "b": 2})))
    # JSONB has short names first; the models leave them so, and native code, whose names rise, declines.
    assert not check(WHOLES, sent(WHOLES, document(counts={"b": 1, "aa": 2})))
    assert not check(WHOLES, sent(WHOLES, document(named={"b": Part(), "aa": Part()})))


def test_whole_numbers_in_lists_and_maps_of_models_are_written_alike() -> None:
    for number in (3.0, float(2**40), 0.5):
        part = Part(share=number)
        for raw in (document(parts=(part,)), document(shares=(number,)), document(named={"a": part})):
            row = written(WHOLES, raw)
            assert row is not None
            assert row == expected(WHOLES, raw)
            assert b"3.0" not in row
            assert check(WHOLES, row)
