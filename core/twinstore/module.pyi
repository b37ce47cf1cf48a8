# What the author of a module imports, as `python -m twinstore.codegen.aio` wrote it.

from twinstore.access.defaults import AccessDefaults as AccessDefaults
from twinstore.access.defaults import Log as Log
from twinstore.access.defaults import MarkRule as MarkRule
from twinstore.access.defaults import PartialProgress as PartialProgress
from twinstore.access.defaults import append_rows as append_rows
from twinstore.access.defaults import every_page as every_page
from twinstore.access.defaults import first_keys as first_keys
from twinstore.access.defaults import first_readable as first_readable
from twinstore.access.defaults import highest_number as highest_number
from twinstore.access.defaults import keys_of as keys_of
from twinstore.access.defaults import mark_in_batches as mark_in_batches
from twinstore.access.defaults import matches as matches
from twinstore.access.defaults import sequence_field as sequence_field
from twinstore.access.keyed import KeyedRepository as KeyedRepository
from twinstore.access.paging import Page as Page
from twinstore.access.paging import SortKey as SortKey
from twinstore.access.paging import SortValue as SortValue
from twinstore.access.paging import UndecodableRow as UndecodableRow
from twinstore.access.paging import decode_token as decode_token
from twinstore.access.paging import each as each
from twinstore.access.paging import encode_token as encode_token
from twinstore.access.protocol import UNSET as UNSET
from twinstore.access.protocol import Access as Access
from twinstore.access.protocol import Add as Add
from twinstore.access.protocol import Binding as Binding
from twinstore.access.protocol import FieldUpdates as FieldUpdates
from twinstore.access.protocol import Ref as Ref
from twinstore.access.protocol import Rows as Rows
from twinstore.access.protocol import Rule as Rule
from twinstore.access.protocol import ServerClock as ServerClock
from twinstore.access.protocol import ServerTime as ServerTime
from twinstore.access.protocol import UniqueKey as UniqueKey
from twinstore.access.protocol import Unset as Unset
from twinstore.access.protocol import Values as Values
from twinstore.access.protocol import WritingOperation as WritingOperation
from twinstore.access.query import Query as Query
from twinstore.access.query import batch_size_argument as batch_size_argument
from twinstore.access.query import build_query as build_query
from twinstore.access.query import label_of_value as label_of_value
from twinstore.access.query import limit_argument as limit_argument
from twinstore.access.repository import PURGE as PURGE
from twinstore.access.repository import Repository as Repository
from twinstore.access.results import check_written as check_written
from twinstore.access.results import checked as checked
from twinstore.access.retry import CONTENTION_SECONDS as CONTENTION_SECONDS
from twinstore.access.retry import RETRY_QUEUES as RETRY_QUEUES
from twinstore.access.retry import RetryQueues as RetryQueues
from twinstore.access.retry import backoff_delays as backoff_delays
from twinstore.access.retry import retry as retry
from twinstore.access.scope import SYSTEM_TENANT as SYSTEM_TENANT
from twinstore.access.scope import UNBOUND as UNBOUND
from twinstore.access.scope import Scope as Scope
from twinstore.access.scope import count_argument as count_argument
from twinstore.access.scope import duration_argument as duration_argument
from twinstore.access.scope import field_argument as field_argument
from twinstore.access.scope import flag_argument as flag_argument
from twinstore.access.scope import function_argument as function_argument
from twinstore.access.scope import id_argument as id_argument
from twinstore.access.scope import instant_argument as instant_argument
from twinstore.access.scope import member_argument as member_argument
from twinstore.access.scope import members_argument as members_argument
from twinstore.access.scope import object_argument as object_argument
from twinstore.access.scope import optional_reference_argument as optional_reference_argument
from twinstore.access.scope import optional_text_argument as optional_text_argument
from twinstore.access.scope import options_argument as options_argument
from twinstore.access.scope import system_scope_openings as system_scope_openings
from twinstore.access.scope import text_argument as text_argument
from twinstore.access.scope import whole_argument as whole_argument
from twinstore.bulk.stored import StoredObjectId as StoredObjectId
from twinstore.bulk.stored import StoredReference as StoredReference
from twinstore.catalog.conditions import After as After
from twinstore.catalog.conditions import AtLeast as AtLeast
from twinstore.catalog.conditions import AtMost as AtMost
from twinstore.catalog.conditions import Before as Before
from twinstore.catalog.conditions import Comparison as Comparison
from twinstore.catalog.conditions import Condition as Condition
from twinstore.catalog.conditions import Equals as Equals
from twinstore.catalog.conditions import IsNull as IsNull
from twinstore.catalog.conditions import IsPresent as IsPresent
from twinstore.catalog.conditions import NotAfter as NotAfter
from twinstore.catalog.conditions import OneOf as OneOf
from twinstore.catalog.entity import NAME as NAME
from twinstore.catalog.entity import CopyPolicy as CopyPolicy
from twinstore.catalog.entity import Derived as Derived
from twinstore.catalog.entity import Entity as Entity
from twinstore.catalog.entity import Layout as Layout
from twinstore.catalog.entity import Marker as Marker
from twinstore.catalog.entity import Module as Module
from twinstore.catalog.entity import Parent as Parent
from twinstore.catalog.entity import Release as Release
from twinstore.catalog.entity import Retention as Retention
from twinstore.catalog.entity import RetentionUnit as RetentionUnit
from twinstore.catalog.entity import is_present as is_present
from twinstore.catalog.indexes import EVERYWHERE as EVERYWHERE
from twinstore.catalog.indexes import Index as Index
from twinstore.catalog.indexes import StoreKind as StoreKind
from twinstore.catalog.keys import LONGEST_TEXT as LONGEST_TEXT
from twinstore.catalog.keys import Key as Key
from twinstore.catalog.keys import KeyPart as KeyPart
from twinstore.catalog.keys import KeyRange as KeyRange
from twinstore.catalog.keys import KeyType as KeyType
from twinstore.catalog.keys import binary_uuid as binary_uuid
from twinstore.catalog.keys import can_bound as can_bound
from twinstore.catalog.keys import digits as digits
from twinstore.catalog.keys import int64 as int64
from twinstore.catalog.keys import object_id as object_id
from twinstore.catalog.keys import text as text
from twinstore.catalog.keys import uuid as uuid
from twinstore.catalog.row import NO_STORAGE as NO_STORAGE
from twinstore.catalog.row import Row as Row
from twinstore.catalog.tenancy import ALL_TENANTS as ALL_TENANTS
from twinstore.catalog.tenancy import NO_TENANT as NO_TENANT
from twinstore.catalog.tenancy import UNKNOWN_TENANT as UNKNOWN_TENANT
from twinstore.catalog.tenancy import Owner as Owner
from twinstore.catalog.tenancy import StoredOwner as StoredOwner
from twinstore.catalog.tenancy import Tenancy as Tenancy
from twinstore.catalog.tenancy import TenancyKind as TenancyKind
from twinstore.catalog.tenancy import Tenant as Tenant
from twinstore.catalog.tenancy import Tenants as Tenants
from twinstore.catalog.tenancy import owner_of as owner_of
from twinstore.clock import Clock as Clock
from twinstore.clock import FixedClock as FixedClock
from twinstore.clock import ManualClock as ManualClock
from twinstore.clock import SystemClock as SystemClock
from twinstore.clock import truncate_to_millisecond as truncate_to_millisecond
from twinstore.models.canonical import CanonicalJsonSerializer as CanonicalJsonSerializer
from twinstore.models.canonical import CanonicalModel as CanonicalModel
from twinstore.models.canonical import content_digest as content_digest
from twinstore.models.canonical import decode_stored as decode_stored
from twinstore.models.canonical import describe_failure as describe_failure
from twinstore.models.collections import Limit as Limit
from twinstore.models.collections import Ordered as Ordered
from twinstore.models.collections import Ranked as Ranked
from twinstore.models.collections import Unique as Unique
from twinstore.models.collections import without_repeats as without_repeats
from twinstore.models.fields import DATE as DATE
from twinstore.models.fields import INT32_MAX as INT32_MAX
from twinstore.models.fields import INT64_MAX as INT64_MAX
from twinstore.models.fields import INT64_MIN as INT64_MIN
from twinstore.models.fields import Actor as Actor
from twinstore.models.fields import BinaryUuid as BinaryUuid
from twinstore.models.fields import Bytes as Bytes
from twinstore.models.fields import Count as Count
from twinstore.models.fields import Count32 as Count32
from twinstore.models.fields import DecimalNumber as DecimalNumber
from twinstore.models.fields import DigestSet as DigestSet
from twinstore.models.fields import DigestText as DigestText
from twinstore.models.fields import ExtraProperties as ExtraProperties
from twinstore.models.fields import Flag as Flag
from twinstore.models.fields import FreeList as FreeList
from twinstore.models.fields import FreeObject as FreeObject
from twinstore.models.fields import Id as Id
from twinstore.models.fields import Int64 as Int64
from twinstore.models.fields import LowerKeyMap as LowerKeyMap
from twinstore.models.fields import LowerKeyObject as LowerKeyObject
from twinstore.models.fields import Name as Name
from twinstore.models.fields import Number as Number
from twinstore.models.fields import ObjectIdText as ObjectIdText
from twinstore.models.fields import OptionalReference as OptionalReference
from twinstore.models.fields import OptionalText as OptionalText
from twinstore.models.fields import PositiveInt as PositiveInt
from twinstore.models.fields import PositiveInt32 as PositiveInt32
from twinstore.models.fields import SchemaVersion as SchemaVersion
from twinstore.models.fields import SimpleIdentifier as SimpleIdentifier
from twinstore.models.fields import StringSet as StringSet
from twinstore.models.fields import TenantId as TenantId
from twinstore.models.fields import Text as Text
from twinstore.models.fields import TextMap as TextMap
from twinstore.models.fields import Timestamp as Timestamp
from twinstore.models.fields import Trimmed as Trimmed
from twinstore.models.fields import TrimmedKeyMap as TrimmedKeyMap
from twinstore.models.fields import date_in as date_in
from twinstore.models.fields import date_object as date_object
from twinstore.models.fields import explain as explain
from twinstore.models.fields import is_empty as is_empty
from twinstore.models.fields import parse_timestamp as parse_timestamp
from twinstore.models.rules import AbsentIn as AbsentIn
from twinstore.models.rules import AllOrNone as AllOrNone
from twinstore.models.rules import EqualExactlyIn as EqualExactlyIn
from twinstore.models.rules import EqualOrAbsent as EqualOrAbsent
from twinstore.models.rules import FieldAtMost as FieldAtMost
from twinstore.models.rules import FieldDerived as FieldDerived
from twinstore.models.rules import FieldTypes as FieldTypes
from twinstore.models.rules import FilledFrom as FilledFrom
from twinstore.models.rules import FirstOf as FirstOf
from twinstore.models.rules import LengthAtMost as LengthAtMost
from twinstore.models.rules import ModelRule as ModelRule
from twinstore.models.rules import NotBefore as NotBefore
from twinstore.models.rules import PresentExactlyIn as PresentExactlyIn
from twinstore.models.rules import PresentExactlyWhen as PresentExactlyWhen
from twinstore.models.rules import PresentIn as PresentIn
from twinstore.models.rules import RequiresEntry as RequiresEntry
from twinstore.models.rules import SumAtMost as SumAtMost
from twinstore.models.rules import body_of as body_of
from twinstore.models.rules import check_fields as check_fields
from twinstore.models.rules import field_types as field_types
from twinstore.models.rules import filled_from as filled_from
from twinstore.models.rules import first_broken as first_broken
from twinstore.models.rules import record_body as record_body
from twinstore.models.rules import validator_of as validator_of
from twinstore.models.rules import when_missing as when_missing
from twinstore.models.shapes import FieldShape as FieldShape
from twinstore.models.shapes import Kind as Kind
from twinstore.models.shapes import VariantModel as VariantModel
from twinstore.models.shapes import has_floats as has_floats
from twinstore.models.shapes import holds_floats as holds_floats
from twinstore.models.shapes import instant_paths as instant_paths
from twinstore.models.shapes import is_whole as is_whole
from twinstore.models.shapes import lossy_map as lossy_map
from twinstore.models.shapes import lossy_map_reason as lossy_map_reason
from twinstore.models.shapes import omitted_values as omitted_values
from twinstore.models.shapes import shapes_of as shapes_of
from twinstore.models.shapes import variants_of as variants_of
from twinstore.models.typed_objects import binary_in as binary_in
from twinstore.models.typed_objects import binary_object as binary_object
from twinstore.models.typed_objects import decimal_in as decimal_in
from twinstore.models.typed_objects import decimal_object as decimal_object
from twinstore.models.typed_objects import is_typed_object as is_typed_object
from twinstore.models.typed_objects import oid_in as oid_in
from twinstore.models.typed_objects import oid_object as oid_object
from twinstore.plugins.checks import Cutoffs as Cutoffs
from twinstore.plugins.checks import ListedRow as ListedRow
from twinstore.plugins.checks import ListQuery as ListQuery
from twinstore.plugins.checks import ModuleChecks as ModuleChecks
from twinstore.plugins.checks import NeededRows as NeededRows
from twinstore.plugins.checks import SmokeTest as SmokeTest
from twinstore.plugins.checks import StoredList as StoredList
from twinstore.plugins.checks import Trial as Trial
from twinstore.plugins.checks import TrialStep as TrialStep
from twinstore.plugins.checks import expect as expect
from twinstore.plugins.checks import never_committed as never_committed
from twinstore.plugins.checks import paged as paged
from twinstore.plugins.checks import single_page as single_page
from twinstore.plugins.module_spec import ModuleSpec as ModuleSpec
from twinstore.plugins.module_spec import Normalise as Normalise
from twinstore.plugins.modules import MODULE_GROUP as MODULE_GROUP
from twinstore.plugins.modules import ModulePlugin as ModulePlugin
from twinstore.plugins.modules import broken_modules as broken_modules
from twinstore.plugins.modules import built_modules as built_modules
from twinstore.plugins.modules import complete_modules as complete_modules
from twinstore.plugins.modules import module_plugin as module_plugin
from twinstore.plugins.modules import module_plugins as module_plugins
from twinstore.plugins.modules import module_spec as module_spec
from twinstore.plugins.options import ConfigPath as ConfigPath
from twinstore.plugins.options import Days as Days
from twinstore.plugins.options import ModuleOptions as ModuleOptions
from twinstore.plugins.options import ModuleSettings as ModuleSettings
from twinstore.plugins.options import RetentionSeconds as RetentionSeconds
from twinstore.plugins.options import Seconds as Seconds
from twinstore.storage.data import DataSession as DataSession
from twinstore.storage.data import DataStorage as DataStorage
from twinstore.storage.module import ModuleStorage as ModuleStorage
from twinstore.storage.module import SessionFactory as SessionFactory

__all__: list[str] = [
    "ALL_TENANTS",
    "CONTENTION_SECONDS",
    "DATE",
    "EVERYWHERE",
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "LONGEST_TEXT",
    "MODULE_GROUP",
    "NAME",
    "NO_STORAGE",
    "NO_TENANT",
    "PURGE",
    "RETRY_QUEUES",
    "SYSTEM_TENANT",
    "UNBOUND",
    "UNKNOWN_TENANT",
    "UNSET",
    "AbsentIn",
    "Access",
    "AccessDefaults",
    "Actor",
    "Add",
    "After",
    "AllOrNone",
    "AtLeast",
    "AtMost",
    "Before",
    "BinaryUuid",
    "Binding",
    "Bytes",
    "CanonicalJsonSerializer",
    "CanonicalModel",
    "Clock",
    "Comparison",
    "Condition",
    "ConfigPath",
    "CopyPolicy",
    "Count",
    "Count32",
    "Cutoffs",
    "DataSession",
    "DataStorage",
    "Days",
    "DecimalNumber",
    "Derived",
    "DigestSet",
    "DigestText",
    "Entity",
    "EqualExactlyIn",
    "EqualOrAbsent",
    "Equals",
    "ExtraProperties",
    "FieldAtMost",
    "FieldDerived",
    "FieldShape",
    "FieldTypes",
    "FieldUpdates",
    "FilledFrom",
    "FirstOf",
    "FixedClock",
    "Flag",
    "FreeList",
    "FreeObject",
    "Id",
    "Index",
    "Int64",
    "IsNull",
    "IsPresent",
    "Key",
    "KeyPart",
    "KeyRange",
    "KeyType",
    "KeyedRepository",
    "Kind",
    "Layout",
    "LengthAtMost",
    "Limit",
    "ListQuery",
    "ListedRow",
    "Log",
    "LowerKeyMap",
    "LowerKeyObject",
    "ManualClock",
    "MarkRule",
    "Marker",
    "ModelRule",
    "Module",
    "ModuleChecks",
    "ModuleOptions",
    "ModulePlugin",
    "ModuleSettings",
    "ModuleSpec",
    "ModuleStorage",
    "Name",
    "NeededRows",
    "Normalise",
    "NotAfter",
    "NotBefore",
    "Number",
    "ObjectIdText",
    "OneOf",
    "OptionalReference",
    "OptionalText",
    "Ordered",
    "Owner",
    "Page",
    "Parent",
    "PartialProgress",
    "PositiveInt",
    "PositiveInt32",
    "PresentExactlyIn",
    "PresentExactlyWhen",
    "PresentIn",
    "Query",
    "Ranked",
    "Ref",
    "Release",
    "Repository",
    "RequiresEntry",
    "Retention",
    "RetentionSeconds",
    "RetentionUnit",
    "RetryQueues",
    "Row",
    "Rows",
    "Rule",
    "SchemaVersion",
    "Scope",
    "Seconds",
    "ServerClock",
    "ServerTime",
    "SessionFactory",
    "SimpleIdentifier",
    "SmokeTest",
    "SortKey",
    "SortValue",
    "StoreKind",
    "StoredList",
    "StoredObjectId",
    "StoredOwner",
    "StoredReference",
    "StringSet",
    "SumAtMost",
    "SystemClock",
    "Tenancy",
    "TenancyKind",
    "Tenant",
    "TenantId",
    "Tenants",
    "Text",
    "TextMap",
    "Timestamp",
    "Trial",
    "TrialStep",
    "Trimmed",
    "TrimmedKeyMap",
    "UndecodableRow",
    "Unique",
    "UniqueKey",
    "Unset",
    "Values",
    "VariantModel",
    "WritingOperation",
    "append_rows",
    "backoff_delays",
    "batch_size_argument",
    "binary_in",
    "binary_object",
    "binary_uuid",
    "body_of",
    "broken_modules",
    "build_query",
    "built_modules",
    "can_bound",
    "check_fields",
    "check_written",
    "checked",
    "complete_modules",
    "content_digest",
    "count_argument",
    "date_in",
    "date_object",
    "decimal_in",
    "decimal_object",
    "decode_stored",
    "decode_token",
    "describe_failure",
    "digits",
    "duration_argument",
    "each",
    "encode_token",
    "every_page",
    "expect",
    "explain",
    "field_argument",
    "field_types",
    "filled_from",
    "first_broken",
    "first_keys",
    "first_readable",
    "flag_argument",
    "function_argument",
    "has_floats",
    "highest_number",
    "holds_floats",
    "id_argument",
    "instant_argument",
    "instant_paths",
    "int64",
    "is_empty",
    "is_present",
    "is_typed_object",
    "is_whole",
    "keys_of",
    "label_of_value",
    "limit_argument",
    "lossy_map",
    "lossy_map_reason",
    "mark_in_batches",
    "matches",
    "member_argument",
    "members_argument",
    "module_plugin",
    "module_plugins",
    "module_spec",
    "never_committed",
    "object_argument",
    "object_id",
    "oid_in",
    "oid_object",
    "omitted_values",
    "optional_reference_argument",
    "optional_text_argument",
    "options_argument",
    "owner_of",
    "paged",
    "parse_timestamp",
    "record_body",
    "retry",
    "sequence_field",
    "shapes_of",
    "single_page",
    "system_scope_openings",
    "text",
    "text_argument",
    "truncate_to_millisecond",
    "uuid",
    "validator_of",
    "variants_of",
    "when_missing",
    "whole_argument",
    "without_repeats",
]

PARTS: tuple[str, ...]
