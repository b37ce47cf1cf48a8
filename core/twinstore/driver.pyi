# What the author of a driver imports, as `python -m twinstore.codegen.aio` wrote it.

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
from twinstore.access.errors import NumberTakenError as NumberTakenError
from twinstore.access.errors import duplicate as duplicate
from twinstore.access.errors import duplicate_id as duplicate_id
from twinstore.access.errors import duplicate_value as duplicate_value
from twinstore.access.errors import invalid_transition as invalid_transition
from twinstore.access.errors import lost_race as lost_race
from twinstore.access.errors import not_found as not_found
from twinstore.access.errors import required as required
from twinstore.access.errors import sequence_exhausted as sequence_exhausted
from twinstore.access.errors import sequence_taken as sequence_taken
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
from twinstore.access.unit_state import SESSION_OR_UNIT as SESSION_OR_UNIT
from twinstore.access.unit_state import Lifetime as Lifetime
from twinstore.access.unit_state import ReadyWithin as ReadyWithin
from twinstore.access.unit_state import UnitState as UnitState
from twinstore.access.unit_state import write_refused as write_refused
from twinstore.access.unit_state import wrong_handle as wrong_handle
from twinstore.bulk.corruption import STORED_NULL as STORED_NULL
from twinstore.bulk.corruption import CorruptionRefusedError as CorruptionRefusedError
from twinstore.bulk.corruption import CorruptionWriter as CorruptionWriter
from twinstore.bulk.corruption import DuplicateMember as DuplicateMember
from twinstore.bulk.corruption import RawRow as RawRow
from twinstore.bulk.corruption import Role as Role
from twinstore.bulk.corruption import SchemaPart as SchemaPart
from twinstore.bulk.corruption import StoredPlace as StoredPlace
from twinstore.bulk.port import NO_ADDITIONAL_VALUES as NO_ADDITIONAL_VALUES
from twinstore.bulk.port import NO_PARENT as NO_PARENT
from twinstore.bulk.port import TOO_LARGE as TOO_LARGE
from twinstore.bulk.port import BulkPort as BulkPort
from twinstore.bulk.port import BulkView as BulkView
from twinstore.bulk.port import Cell as Cell
from twinstore.bulk.port import CommitCheck as CommitCheck
from twinstore.bulk.port import Conflict as Conflict
from twinstore.bulk.port import Counted as Counted
from twinstore.bulk.port import Digestible as Digestible
from twinstore.bulk.port import ImportOutcome as ImportOutcome
from twinstore.bulk.port import Inventory as Inventory
from twinstore.bulk.port import Key as Key
from twinstore.bulk.port import KeyRange as KeyRange
from twinstore.bulk.port import NoDigests as NoDigests
from twinstore.bulk.port import OnConflict as OnConflict
from twinstore.bulk.port import Placed as Placed
from twinstore.bulk.port import Position as Position
from twinstore.bulk.port import RangeDigests as RangeDigests
from twinstore.bulk.port import RangeWriter as RangeWriter
from twinstore.bulk.port import Record as Record
from twinstore.bulk.port import Rejected as Rejected
from twinstore.bulk.port import ScanRow as ScanRow
from twinstore.bulk.rows import EVERY_RANGE as EVERY_RANGE
from twinstore.bulk.rows import FOLDED as FOLDED
from twinstore.bulk.rows import LONGEST_READABLE as LONGEST_READABLE
from twinstore.bulk.rows import MARK as MARK
from twinstore.bulk.rows import NUMBERS as NUMBERS
from twinstore.bulk.rows import SECRET_BYTES as SECRET_BYTES
from twinstore.bulk.rows import Original as Original
from twinstore.bulk.rows import base64_pieces as base64_pieces
from twinstore.bulk.rows import content_without as content_without
from twinstore.bulk.rows import has_marks as has_marks
from twinstore.bulk.rows import marked as marked
from twinstore.bulk.rows import unmarked as unmarked
from twinstore.bulk.unique_moves import INDEX_TAKEN as INDEX_TAKEN
from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN as UNIQUE_VALUE_TAKEN
from twinstore.bulk.unique_moves import UniqueConflict as UniqueConflict
from twinstore.bulk.unique_moves import conflict_reason as conflict_reason
from twinstore.bulk.unique_moves import index_taken as index_taken
from twinstore.bulk.unique_moves import noun_of as noun_of
from twinstore.bulk.unique_moves import unique_conflicts as unique_conflicts
from twinstore.bulk.unique_moves import unique_keys as unique_keys
from twinstore.bulk.unique_moves import without_holder as without_holder
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
from twinstore.catalog.keys import KeyPart as KeyPart
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
from twinstore.documents import AppliedScript as AppliedScript
from twinstore.documents import DocumentAccess as DocumentAccess
from twinstore.documents import DocumentBackend as DocumentBackend
from twinstore.documents import DocumentBulk as DocumentBulk
from twinstore.documents import DocumentRow as DocumentRow
from twinstore.documents import DocumentUnit as DocumentUnit
from twinstore.documents import DocumentView as DocumentView
from twinstore.documents import DocumentWriter as DocumentWriter
from twinstore.documents import OneTable as OneTable
from twinstore.documents import RowLocks as RowLocks
from twinstore.documents import ScanningUnit as ScanningUnit
from twinstore.documents import Script as Script
from twinstore.documents import ScriptInitializer as ScriptInitializer
from twinstore.documents import SqlText as SqlText
from twinstore.documents import decode as decode
from twinstore.documents import encode as encode
from twinstore.documents import evaluate as evaluate
from twinstore.documents import row_of_json as row_of_json
from twinstore.documents import sort_key as sort_key
from twinstore.ledger import LEDGER_MODULE as LEDGER_MODULE
from twinstore.ledger import Claim as Claim
from twinstore.ledger import ConflictLine as ConflictLine
from twinstore.ledger import CopyJob as CopyJob
from twinstore.ledger import CopyWorker as CopyWorker
from twinstore.ledger import JobState as JobState
from twinstore.ledger import Lease as Lease
from twinstore.ledger import Ledger as Ledger
from twinstore.ledger import QuarantineLine as QuarantineLine
from twinstore.ledger import RangeProgress as RangeProgress
from twinstore.ledger import RangeState as RangeState
from twinstore.ledger import RangeTally as RangeTally
from twinstore.ledger import Suspicion as Suspicion
from twinstore.migrations.migration import COUNTED_ROWS as COUNTED_ROWS
from twinstore.migrations.migration import Consent as Consent
from twinstore.migrations.migration import ExportsPartitions as ExportsPartitions
from twinstore.migrations.migration import Initializer as Initializer
from twinstore.migrations.migration import MigrationDraft as MigrationDraft
from twinstore.migrations.migration import MigrationReport as MigrationReport
from twinstore.migrations.migration import MigrationState as MigrationState
from twinstore.migrations.migration import MigrationStatus as MigrationStatus
from twinstore.migrations.migration import ReportsDefaults as ReportsDefaults
from twinstore.migrations.migration import SchemaSnapshot as SchemaSnapshot
from twinstore.migrations.migration import SessionDefaults as SessionDefaults
from twinstore.migrations.migration import TakesSnapshots as TakesSnapshots
from twinstore.migrations.migration import consent_required as consent_required
from twinstore.migrations.migration import logs_migration as logs_migration
from twinstore.migrations.migration import migration_problems as migration_problems
from twinstore.migrations.migration import no_migrations as no_migrations
from twinstore.migrations.migration import without_consent as without_consent
from twinstore.models.canonical import CanonicalJsonSerializer as CanonicalJsonSerializer
from twinstore.models.canonical import CanonicalModel as CanonicalModel
from twinstore.models.canonical import content_digest as content_digest
from twinstore.models.canonical import decode_stored as decode_stored
from twinstore.models.canonical import describe_failure as describe_failure
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
from twinstore.models.json_text import DEEPEST as DEEPEST
from twinstore.models.json_text import LARGE_TEXT as LARGE_TEXT
from twinstore.models.json_text import JsonObject as JsonObject
from twinstore.models.json_text import JsonValue as JsonValue
from twinstore.models.json_text import checked_number as checked_number
from twinstore.models.json_text import dumps as dumps
from twinstore.models.json_text import dumps_pretty as dumps_pretty
from twinstore.models.json_text import format_timestamp as format_timestamp
from twinstore.models.json_text import loads as loads
from twinstore.models.json_text import normalised_object as normalised_object
from twinstore.models.json_text import parse_json as parse_json
from twinstore.models.json_text import plain_utc as plain_utc
from twinstore.models.json_text import truncated as truncated
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
from twinstore.plugins.access_backend import AccessBackend as AccessBackend
from twinstore.plugins.backend import BACKEND_API_VERSION as BACKEND_API_VERSION
from twinstore.plugins.backend import BackendSpec as BackendSpec
from twinstore.plugins.backend import Capabilities as Capabilities
from twinstore.plugins.backend import ModuleBackend as ModuleBackend
from twinstore.plugins.backend import OpenCorruptionWriter as OpenCorruptionWriter
from twinstore.plugins.backend import OpenRequest as OpenRequest
from twinstore.plugins.drivers import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
from twinstore.plugins.drivers import BackendHooks as BackendHooks
from twinstore.plugins.drivers import BackendInfo as BackendInfo
from twinstore.plugins.drivers import hookimpl as hookimpl
from twinstore.plugins.drivers import installed_backend_names as installed_backend_names
from twinstore.plugins.drivers import list_backends as list_backends
from twinstore.plugins.drivers import load_backend as load_backend
from twinstore.plugins.drivers import opened as opened
from twinstore.plugins.drivers import refuse_patched_threads as refuse_patched_threads
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
from twinstore.plugins.resources import SharedResources as SharedResources
from twinstore.plugins.settings import BackendSettings as BackendSettings
from twinstore.runtime.cancellation import RunningCall as RunningCall
from twinstore.runtime.cancellation import cancellable as cancellable
from twinstore.runtime.cancellation import cancelled as cancelled
from twinstore.runtime.cancellation import running_call as running_call
from twinstore.runtime.forks import ForkSafeLock as ForkSafeLock
from twinstore.runtime.forks import NotPicklable as NotPicklable
from twinstore.runtime.forks import ProcessGuard as ProcessGuard
from twinstore.runtime.forks import Renewable as Renewable
from twinstore.runtime.forks import cleanup_unless_forked as cleanup_unless_forked
from twinstore.runtime.forks import guard_stream as guard_stream
from twinstore.runtime.forks import renew_in_child as renew_in_child
from twinstore.runtime.forks import retain as retain
from twinstore.runtime.service_log import LOG_INTERVAL_SECONDS as LOG_INTERVAL_SECONDS
from twinstore.runtime.service_log import Limiter as Limiter
from twinstore.runtime.service_log import log_connected as log_connected
from twinstore.runtime.service_log import log_lost_race as log_lost_race
from twinstore.runtime.service_log import log_ready as log_ready
from twinstore.runtime.service_log import log_recovered as log_recovered
from twinstore.runtime.service_log import log_unavailable as log_unavailable
from twinstore.storage.module import ModuleStorage as ModuleStorage
from twinstore.storage.module import SessionFactory as SessionFactory
from twinstore.storage.open import Storage as Storage
from twinstore.storage.open import open_module as open_module
from twinstore.storage.open import open_storage as open_storage

__all__: list[str] = [
    "ALL_TENANTS",
    "BACKEND_API_VERSION",
    "CONTENTION_SECONDS",
    "COUNTED_ROWS",
    "DATE",
    "DEEPEST",
    "ENTRY_POINT_GROUP",
    "EVERYWHERE",
    "EVERY_RANGE",
    "FOLDED",
    "INDEX_TAKEN",
    "INT32_MAX",
    "INT64_MAX",
    "INT64_MIN",
    "LARGE_TEXT",
    "LEDGER_MODULE",
    "LOG_INTERVAL_SECONDS",
    "LONGEST_READABLE",
    "LONGEST_TEXT",
    "MARK",
    "MODULE_GROUP",
    "NAME",
    "NO_ADDITIONAL_VALUES",
    "NO_PARENT",
    "NO_STORAGE",
    "NO_TENANT",
    "NUMBERS",
    "RETRY_QUEUES",
    "SECRET_BYTES",
    "SESSION_OR_UNIT",
    "STORED_NULL",
    "SYSTEM_TENANT",
    "TOO_LARGE",
    "UNBOUND",
    "UNIQUE_VALUE_TAKEN",
    "UNKNOWN_TENANT",
    "UNSET",
    "Access",
    "AccessBackend",
    "AccessDefaults",
    "Actor",
    "Add",
    "After",
    "AppliedScript",
    "AtLeast",
    "AtMost",
    "BackendHooks",
    "BackendInfo",
    "BackendSettings",
    "BackendSpec",
    "Before",
    "BinaryUuid",
    "Binding",
    "BulkPort",
    "BulkView",
    "Bytes",
    "CanonicalJsonSerializer",
    "CanonicalModel",
    "Capabilities",
    "Cell",
    "Claim",
    "Clock",
    "CommitCheck",
    "Comparison",
    "Condition",
    "ConfigPath",
    "Conflict",
    "ConflictLine",
    "Consent",
    "CopyJob",
    "CopyPolicy",
    "CopyWorker",
    "CorruptionRefusedError",
    "CorruptionWriter",
    "Count",
    "Count32",
    "Counted",
    "Days",
    "DecimalNumber",
    "Derived",
    "DigestSet",
    "DigestText",
    "Digestible",
    "DocumentAccess",
    "DocumentBackend",
    "DocumentBulk",
    "DocumentRow",
    "DocumentUnit",
    "DocumentView",
    "DocumentWriter",
    "DuplicateMember",
    "Entity",
    "Equals",
    "ExportsPartitions",
    "ExtraProperties",
    "FieldShape",
    "FieldUpdates",
    "FixedClock",
    "Flag",
    "ForkSafeLock",
    "FreeList",
    "FreeObject",
    "Id",
    "ImportOutcome",
    "Index",
    "Initializer",
    "Int64",
    "Inventory",
    "IsNull",
    "IsPresent",
    "JobState",
    "JsonObject",
    "JsonValue",
    "Key",
    "KeyPart",
    "KeyRange",
    "KeyType",
    "Kind",
    "Layout",
    "Lease",
    "Ledger",
    "Lifetime",
    "Limiter",
    "Log",
    "LowerKeyMap",
    "LowerKeyObject",
    "ManualClock",
    "MarkRule",
    "Marker",
    "MigrationDraft",
    "MigrationReport",
    "MigrationState",
    "MigrationStatus",
    "Module",
    "ModuleBackend",
    "ModuleOptions",
    "ModulePlugin",
    "ModuleSettings",
    "ModuleSpec",
    "ModuleStorage",
    "Name",
    "NoDigests",
    "Normalise",
    "NotAfter",
    "NotPicklable",
    "Number",
    "NumberTakenError",
    "ObjectIdText",
    "OnConflict",
    "OneOf",
    "OneTable",
    "OpenCorruptionWriter",
    "OpenRequest",
    "OptionalReference",
    "OptionalText",
    "Original",
    "Owner",
    "Page",
    "Parent",
    "PartialProgress",
    "Placed",
    "Position",
    "PositiveInt",
    "PositiveInt32",
    "ProcessGuard",
    "QuarantineLine",
    "Query",
    "RangeDigests",
    "RangeProgress",
    "RangeState",
    "RangeTally",
    "RangeWriter",
    "RawRow",
    "ReadyWithin",
    "Record",
    "Ref",
    "Rejected",
    "Release",
    "Renewable",
    "ReportsDefaults",
    "Retention",
    "RetentionSeconds",
    "RetentionUnit",
    "RetryQueues",
    "Role",
    "Row",
    "RowLocks",
    "Rows",
    "Rule",
    "RunningCall",
    "ScanRow",
    "ScanningUnit",
    "SchemaPart",
    "SchemaSnapshot",
    "SchemaVersion",
    "Scope",
    "Script",
    "ScriptInitializer",
    "Seconds",
    "ServerClock",
    "ServerTime",
    "SessionDefaults",
    "SessionFactory",
    "SharedResources",
    "SimpleIdentifier",
    "SortKey",
    "SortValue",
    "SqlText",
    "Storage",
    "StoreKind",
    "StoredOwner",
    "StoredPlace",
    "StringSet",
    "Suspicion",
    "SystemClock",
    "TakesSnapshots",
    "Tenancy",
    "TenancyKind",
    "Tenant",
    "TenantId",
    "Tenants",
    "Text",
    "TextMap",
    "Timestamp",
    "Trimmed",
    "TrimmedKeyMap",
    "UndecodableRow",
    "UniqueConflict",
    "UniqueKey",
    "UnitState",
    "Unset",
    "Values",
    "VariantModel",
    "WritingOperation",
    "append_rows",
    "backoff_delays",
    "base64_pieces",
    "batch_size_argument",
    "binary_in",
    "binary_object",
    "binary_uuid",
    "broken_modules",
    "build_query",
    "built_modules",
    "can_bound",
    "cancellable",
    "cancelled",
    "checked_number",
    "cleanup_unless_forked",
    "complete_modules",
    "conflict_reason",
    "consent_required",
    "content_digest",
    "content_without",
    "count_argument",
    "date_in",
    "date_object",
    "decimal_in",
    "decimal_object",
    "decode",
    "decode_stored",
    "decode_token",
    "describe_failure",
    "digits",
    "dumps",
    "dumps_pretty",
    "duplicate",
    "duplicate_id",
    "duplicate_value",
    "duration_argument",
    "each",
    "encode",
    "encode_token",
    "evaluate",
    "every_page",
    "explain",
    "field_argument",
    "first_keys",
    "first_readable",
    "flag_argument",
    "format_timestamp",
    "function_argument",
    "guard_stream",
    "has_floats",
    "has_marks",
    "highest_number",
    "holds_floats",
    "hookimpl",
    "id_argument",
    "index_taken",
    "installed_backend_names",
    "instant_argument",
    "instant_paths",
    "int64",
    "invalid_transition",
    "is_empty",
    "is_present",
    "is_typed_object",
    "is_whole",
    "keys_of",
    "label_of_value",
    "limit_argument",
    "list_backends",
    "load_backend",
    "loads",
    "log_connected",
    "log_lost_race",
    "log_ready",
    "log_recovered",
    "log_unavailable",
    "logs_migration",
    "lossy_map",
    "lossy_map_reason",
    "lost_race",
    "mark_in_batches",
    "marked",
    "matches",
    "member_argument",
    "members_argument",
    "migration_problems",
    "module_plugin",
    "module_plugins",
    "module_spec",
    "no_migrations",
    "normalised_object",
    "not_found",
    "noun_of",
    "object_argument",
    "object_id",
    "oid_in",
    "oid_object",
    "omitted_values",
    "open_module",
    "open_storage",
    "opened",
    "optional_reference_argument",
    "optional_text_argument",
    "options_argument",
    "owner_of",
    "parse_json",
    "parse_timestamp",
    "plain_utc",
    "refuse_patched_threads",
    "renew_in_child",
    "required",
    "retain",
    "retry",
    "row_of_json",
    "running_call",
    "sequence_exhausted",
    "sequence_field",
    "sequence_taken",
    "shapes_of",
    "sort_key",
    "system_scope_openings",
    "text",
    "text_argument",
    "truncate_to_millisecond",
    "truncated",
    "unique_conflicts",
    "unique_keys",
    "unmarked",
    "uuid",
    "variants_of",
    "whole_argument",
    "without_consent",
    "without_holder",
    "write_refused",
    "wrong_handle",
]

PARTS: tuple[str, ...]
