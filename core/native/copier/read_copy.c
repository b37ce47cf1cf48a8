// Rows of a binary COPY become packed rows: each value as BSON first, which the checker judges like that of a document.
#include <stdlib.h>

#include "copier/bson.h"
#include "copier/columns.h"
#include "copier/text.h"
#include "copier/transcode.h"
#include "copier/typed.h"

// As rows that are written: beyond it the exact way bounds what they take as objects.
#define LARGEST_ROW 250000
#define JSONB_VERSION 1
#define ARRAY_HEAD 20
#define EMPTY_HEAD 12
#define MOST_ITEMS 100000
#define MOST_GROUPS 20
#define GROUP_END 10000

// A value in the scratch, which may move until all are there.
typedef struct {
  size_t start, end;
  u8 type;
} Cell;

// A field of a row: its length, where it lies, and its bytes behind that; `bytes` is NULL for null.
typedef struct {
  const u8 *whole, *bytes;
  u32 size;
} CopyField;

typedef struct {
  const Columns *columns;
  Transcoder transcoder;
  Buffer *scratch;
  CopyField *fields;
  Cell *cells;
  Element *elements;
  Checker checker;
} Reader;

static u8 read_text(Buffer *out, const Node *node, const CopyField *field) {
  Text text = {field->bytes, field->size};
  return is_typed(node) ? typed_value(node, text, out) : bson_add_text(out, text);
}

static u8 read_uuid(Buffer *out, const Node *node, const CopyField *field) {
  u8 text[UUID_TEXT];
  if (field->size != UUID_BYTES) return 0;
  if (node->kind == NODE_UUID) return bson_add_binary(out, UUID_SUBTYPE, field->bytes, UUID_BYTES);
  uuid_text(field->bytes, text);
  return bson_add_text(out, (Text){text, UUID_TEXT});
}

// The digits of a group, of which those that are not stored are zeros; GROUP_END for what is no group.
static u32 group_at(const CopyField *field, i32 group, i32 count) {
  if (group < 0 || group >= count) return 0;
  u32 value = read_be16(field->bytes + NUMERIC_HEAD + 2 * group);
  return value < GROUP_END ? value : GROUP_END;
}

// Adds groups to the digits of a number, the first ones without zeros in front; 0 for what is no group.
static u32 add_groups(const CopyField *field, i32 group, i32 end, i32 count, u8 *text, u32 at) {
  for (; group < end; group++) {
    u32 value = group_at(field, group, count);
    if (value == GROUP_END) return 0;
    for (u32 each = GROUP_END / 10; each; each /= 10) {
      u8 digit = (u8)('0' + value / each % 10);
      if (at > 1 || digit != '0') text[at++] = digit;
    }
  }
  return at;
}

// A number of the server: how many groups, where the first stands, sign, digits behind the point, and the groups.
static u8 read_numeric(Buffer *out, const Node *node, const CopyField *field) {
  u8 text[2 * MOST_GROUPS * NUMERIC_GROUP] = "-";
  if (field->size < NUMERIC_HEAD) return 0;
  i32 count = read_be16(field->bytes), weight = (int16_t)read_be16(field->bytes + 2);
  u32 sign = read_be16(field->bytes + 4), scale = read_be16(field->bytes + 6);
  if (field->size != NUMERIC_HEAD + 2 * (u32)count || scale > MOST_DIGITS) return 0;
  if (sign && sign != NUMERIC_NEGATIVE) return 0;
  i32 last = weight + 1 + (i32)((scale + NUMERIC_GROUP - 1) / NUMERIC_GROUP);
  if (weight >= MOST_GROUPS / 2 || weight < -MOST_GROUPS / 2 || count > (last < 0 ? 0 : last)) return 0;
  u32 at = add_groups(field, 0, weight + 1, count, text, 1);
  if (at == 1) text[at++] = '0';
  u32 end = at + (scale ? 1 + scale : 0);
  if (at && scale) {
    text[at++] = '.';
    at = add_groups(field, weight + 1, last, count, text, at);
  }
  // The rest of the last group is none of the number.
  for (u32 rest = end; rest < at; rest++)
    if (text[rest] != '0') return 0;
  return at ? typed_value(node, (Text){text + !sign, end - !sign}, out) : 0;
}

static u8 read_instant_field(Buffer *out, const CopyField *field) {
  if (field->size != 8) return 0;
  i64 microseconds = (i64)read_be64(field->bytes);
  // Infinity and minus infinity are no multiples either.
  if (microseconds % 1000) return 0;
  buffer_add_i64(out, microseconds / 1000 + SERVER_EPOCH);
  return BSON_INSTANT;
}

// An integer that has as many bytes as its type; the width in the document is for others to choose.
static u8 read_int(Buffer *out, const u8 *bytes, u32 size, u32 wanted) {
  if (size != wanted) return 0;
  i64 value = size == 2 ? (int16_t)read_be16(bytes) : size == 4 ? (i32)read_be32(bytes) : (i64)read_be64(bytes);
  return bson_add_int(out, value, 0);
}

static u8 read_real_field(Buffer *out, const CopyField *field) {
  if (field->size != 8) return 0;
  buffer_add_i64(out, (i64)read_be64(field->bytes));
  return BSON_DOUBLE;
}

static u8 read_item(Buffer *out, const u8 *bytes, u32 size, u32 type) {
  if (type == OID_TEXT) return bson_add_text(out, (Text){bytes, size});
  return read_int(out, bytes, size, type == OID_INT4 ? 4 : 8);
}

static int read_items(Buffer *out, const u8 *at, const u8 *end, u32 count, u32 type) {
  for (u32 index = 0; index < count; index++) {
    if (end - at < 4) return 0;
    u32 size = read_be32(at);
    at += 4;
    // The length of a null is no length.
    if (size > (size_t)(end - at)) return 0;
    size_t start = bson_begin_item(out, index);
    u8 found = read_item(out, at, size, type);
    if (!found || out->failed) return 0;
    out->bytes[start] = found;
    at += size;
  }
  return at == end;
}

// An array of one dimension that begins at 1 and holds no null.
static u8 read_array(Buffer *out, const CopyField *field, u32 type) {
  u32 count = 0;
  if (field->size < EMPTY_HEAD || read_be32(field->bytes + 4) > 1 || read_be32(field->bytes + 8) != type) return 0;
  u32 dimensions = read_be32(field->bytes);
  if (dimensions > 1 || (!dimensions && field->size != EMPTY_HEAD)) return 0;
  if (dimensions) {
    if (field->size < ARRAY_HEAD || read_be32(field->bytes + 16) != 1) return 0;
    count = read_be32(field->bytes + 12);
    if (count > MOST_ITEMS) return 0;
  }
  size_t start = out->size;
  buffer_add_u32(out, 0);
  const u8 *items = field->bytes + (dimensions ? ARRAY_HEAD : EMPTY_HEAD);
  if (!read_items(out, items, field->bytes + field->size, count, type)) return 0;
  bson_end(out, start);
  return BSON_ARRAY;
}

static u8 read_jsonb(Reader *reader, const Node *node, const CopyField *field) {
  if (!field->size || *field->bytes != JSONB_VERSION) return 0;
  return transcode(&reader->transcoder, node, (Text){field->bytes + 1, field->size - 1});
}

// The text of the member that is stored as these bytes.
static u8 read_member(Buffer *out, const Column *column, const Node *node, const CopyField *field) {
  for (u32 index = 0; index < column->member_count && index < node->member_count; index++) {
    Text member = column->members[index];
    if (member.size == field->size + 4 && !memcmp(member.bytes, field->whole, member.size))
      return bson_add_text(out, node->members[index].text);
  }
  return 0;
}

static u8 read_field(Reader *reader, const Column *column, const Node *node, const CopyField *field) {
  Buffer *out = reader->scratch;
  switch (column->kind) {
  case COLUMN_TEXT:
    return read_text(out, node, field);
  case COLUMN_NUMERIC:
    return read_numeric(out, node, field);
  case COLUMN_BYTEA:
    return bson_add_binary(out, BYTES_SUBTYPE, field->bytes, field->size);
  case COLUMN_INT2:
    return read_int(out, field->bytes, field->size, 2);
  case COLUMN_INT4:
    return read_int(out, field->bytes, field->size, 4);
  case COLUMN_INT8:
    return read_int(out, field->bytes, field->size, 8);
  case COLUMN_JSONB:
    return read_jsonb(reader, node, field);
  case COLUMN_TIMESTAMPTZ:
    return read_instant_field(out, field);
  case COLUMN_BOOL:
    if (field->size != 1 || *field->bytes > 1) return 0;
    buffer_add_byte(out, *field->bytes);
    return BSON_FLAG;
  case COLUMN_TEXTS:
    return read_array(out, field, OID_TEXT);
  case COLUMN_INT4S:
    return read_array(out, field, OID_INT4);
  case COLUMN_INT8S:
    return read_array(out, field, OID_INT8);
  case COLUMN_FLOAT8:
    return read_real_field(out, field);
  case COLUMN_UUID:
    return read_uuid(out, node, field);
  case COLUMN_ENUM:
    return read_member(out, column, node, field);
  default:
    return 0;
  }
}

// Whether a field holds what the column has where a value is absent: null, or the default of one that is left out.
static int is_absent(const Slot *slot, const Column *column, const CopyField *field) {
  if (!field->bytes) return slot->presence == FIELD_OPTIONAL && !slot->left_out;
  return slot->left_out && column->absent.size == field->size + 4 && !memcmp(column->absent.bytes, field->whole, column->absent.size);
}

// A null of JSON is one of a model too, which means what an absent value does only where it may be absent.
static int take_null(const Slot *slot, Cell *cell) {
  cell->type = 0;
  return slot->presence == FIELD_OPTIONAL && !slot->left_out;
}

static int read_cell(Reader *reader, const Column *column, const CopyField *field) {
  const Slot *slot = &reader->columns->program->slots[column->slot];
  Cell *cell = &reader->cells[column->slot];
  // What the model reads of a null is not told by a program, but where nothing may stand.
  if (is_absent(slot, column, field)) return 1;
  if (!field->bytes) return 0;
  cell->start = reader->scratch->size;
  cell->type = read_field(reader, column, &reader->columns->program->nodes[slot->node], field);
  cell->end = reader->scratch->size;
  return cell->type == BSON_NULL ? take_null(slot, cell) : cell->type;
}

// The field of the model with a name, the number of fields where there is none.
static u32 field_named(const Program *program, Text name) {
  u32 slot = 0;
  while (slot < program->field_count && !text_equal(program->slots[slot].name, name)) slot++;
  return slot;
}

// Takes the fields of the model from a payload that holds it whole.
static int read_payload(Reader *reader, const CopyField *field) {
  const Program *program = reader->columns->program;
  size_t start = reader->scratch->size;
  if (!field->bytes || read_jsonb(reader, root_of(program), field) != BSON_OBJECT) return 0;
  Walk walk = walk_of(reader->scratch->bytes + start, (u32)(reader->scratch->size - start));
  while (walk.at < walk.stop) {
    Text name;
    Element element;
    if (!walk_next(&walk, &name, &element)) return 0;
    u32 slot = field_named(program, name);
    if (slot == program->field_count || reader->cells[slot].type) return 0;
    size_t at = (size_t)(element.bytes - reader->scratch->bytes);
    reader->cells[slot] = (Cell){at, at + element.size, element.type};
    if (element.type == BSON_NULL && !take_null(&program->slots[slot], &reader->cells[slot])) return 0;
  }
  return 1;
}

static int is_identity(const Program *program, u32 slot) {
  for (u32 index = 0; index < program->key_count; index++)
    if (program->key[index] == slot) return 1;
  return program->tenant == (i32)slot;
}

// Whether a column beside a payload says the same as this; asked of those that tell key and tenant.
static int repeats(Reader *reader, const Column *column, const CopyField *field) {
  const Program *program = reader->columns->program;
  if (!is_identity(program, (u32)column->slot)) return 1;
  Cell told = reader->cells[column->slot];
  reader->cells[column->slot] = (Cell){0};
  if (!read_cell(reader, column, field)) return 0;
  const Cell *found = &reader->cells[column->slot];
  const u8 *bytes = reader->scratch->bytes;
  size_t size = told.end - told.start;
  return found->type == told.type && found->end - found->start == size && !memcmp(bytes + found->start, bytes + told.start, size);
}

static int read_columns(Reader *reader) {
  const Columns *columns = reader->columns;
  const Column *payload = NULL;
  for (u32 index = 0; index < columns->count; index++) {
    const Column *column = &columns->columns[index];
    if (column->kind == COLUMN_PAYLOAD) payload = column;
  }
  if (payload && !read_payload(reader, &reader->fields[payload - columns->columns])) return 0;
  for (u32 index = 0; index < columns->count; index++) {
    const Column *column = &columns->columns[index];
    const CopyField *field = &reader->fields[index];
    // What follows from the others is in no slot.
    if (column == payload || column->slot < 0) continue;
    // A row is read from its payload, and found by the columns beside it.
    int is_beside = payload && (u32)column->slot < columns->program->field_count;
    if (is_beside ? !repeats(reader, column, field) : !read_cell(reader, column, field)) return 0;
  }
  return 1;
}

static int pack_row(Reader *reader, Buffer *rows) {
  u32 slots = reader->columns->program->slot_count;
  reader->scratch->size = 0;
  memset(reader->cells, 0, slots * sizeof(Cell));
  if (!read_columns(reader) || reader->scratch->failed) return 0;
  for (u32 slot = 0; slot < slots; slot++) {
    const Cell *cell = &reader->cells[slot];
    reader->elements[slot] = (Element){reader->scratch->bytes + cell->start, (u32)(cell->end - cell->start), cell->type};
  }
  checker_init(&reader->checker, reader->columns->program);
  return check_row(&reader->checker, reader->elements, rows);
}

// Finds the fields of the row at `at`; answers its end, NULL where it is broken.
static const u8 *find_fields(Reader *reader, const u8 *at, const u8 *end) {
  u32 count = reader->columns->count;
  if (end - at < 2 || read_be16(at) != count) return NULL;
  at += 2;
  for (u32 index = 0; index < count; index++) {
    if (end - at < 4) return NULL;
    u32 size = read_be32(at);
    int is_null = size == UINT32_MAX;
    CopyField *field = &reader->fields[index];
    *field = (CopyField){at, is_null ? NULL : at + 4, is_null ? 0 : size};
    at += 4;
    if (field->size > (size_t)(end - at)) return NULL;
    at += field->size;
  }
  return at;
}

static i64 read_rows(Reader *reader, const u8 *data, size_t size, Buffer *rows, Buffer *places, Buffer *declined) {
  const u8 *at = data, *end = data + size;
  u32 packed = 0;
  if (size > UINT32_MAX) return TS_BROKEN;
  while (at < end) {
    const u8 *next = find_fields(reader, at, end);
    if (!next) return TS_BROKEN;
    u32 start = (u32)(at - data), length = (u32)(next - at), row = (u32)rows->size;
    if (rows->size > UINT32_MAX - LARGEST_ROW * 8) return TS_BROKEN;
    int taken = length <= LARGEST_ROW && pack_row(reader, rows);
    buffer_add_u32(taken ? places : declined, taken ? row : start);
    buffer_add_u32(taken ? places : declined, taken ? start : length);
    buffer_add_u32(taken ? places : declined, taken ? length : packed);
    packed += (u32)taken;
    if (rows->failed || places->failed || declined->failed || reader->scratch->failed) return TS_NO_MEMORY;
    at = next;
  }
  return packed;
}

TS_API i64 ts_read_copy(const Columns *columns, const u8 *data, size_t size, Buffer *rows, Buffer *places, Buffer *declined) {
  Buffer scratch = {0}, members = {0};
  u32 slots = columns->program->slot_count + 1;
  Reader *reader = calloc(1, sizeof(Reader));
  u8 *room = calloc(1, slots * (sizeof(Cell) + sizeof(Element)) + (columns->count + 1) * sizeof(CopyField));
  i64 answer = TS_NO_MEMORY;
  if (reader && room) {
    reader->columns = columns;
    reader->transcoder = (Transcoder){.program = columns->program, .out = &scratch, .members = &members};
    reader->scratch = &scratch;
    reader->cells = (Cell *)(void *)room;
    reader->elements = (Element *)(void *)(reader->cells + slots);
    reader->fields = (CopyField *)(void *)(reader->elements + slots);
    answer = read_rows(reader, data, size, rows, places, declined);
    if (members.failed) answer = TS_NO_MEMORY;
  }
  free(room);
  free(reader);
  free(scratch.bytes);
  free(members.bytes);
  return answer;
}
