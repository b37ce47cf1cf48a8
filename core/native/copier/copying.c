// Packed rows become rows of a binary COPY. What a column cannot hold ends the call: the server would refuse it,
// and only it has the words for that.
#include <stdlib.h>

#include "copier/columns.h"
#include "copier/packed.h"
#include "copier/text.h"
#include "copier/typed.h"

// The head of an array of one dimension: dimensions, whether there are nulls, type, items, first index.
#define ARRAY_HEAD 20
#define EMPTY_HEAD 12

// Adds a field of some bytes and answers where they belong; NULL where there is no memory.
static inline u8 *field(Buffer *out, u32 size) {
  if (!buffer_need(out, 4 + (size_t)size)) return NULL;
  u8 *at = out->bytes + out->size;
  write_be32(at, size);
  out->size += 4 + (size_t)size;
  return at + 4;
}

static inline int add_field(Buffer *out, const u8 *bytes, u32 size) {
  u8 *at = field(out, size);
  if (at) memcpy(at, bytes, size);
  return 1;
}

static int add_text(Buffer *out, const u8 *bytes, u32 size) {
  return memchr(bytes, 0, size) ? 0 : add_field(out, bytes, size);
}

static inline int add_be32(Buffer *out, u32 value) {
  u8 *at = field(out, 4);
  if (at) write_be32(at, value);
  return 1;
}

static inline int add_be64(Buffer *out, u64 value) {
  u8 *at = field(out, 8);
  if (at) write_be64(at, value);
  return 1;
}

static int add_int2(Buffer *out, i64 value) {
  u8 *at = value < INT16_MIN || value > INT16_MAX ? NULL : field(out, 2);
  if (!at) return out->failed;
  at[0] = (u8)((u64)value >> 8);
  at[1] = (u8)value;
  return 1;
}

static int add_int4(Buffer *out, i64 value) {
  return value >= INT32_MIN && value <= INT32_MAX && add_be32(out, (u32)value);
}

static int add_instant(Buffer *out, i64 milliseconds) {
  if (milliseconds < LEAST_INSTANT || milliseconds > MOST_INSTANT) return 0;
  return add_be64(out, (u64)((milliseconds - SERVER_EPOCH) * 1000));
}

static int add_flag(Buffer *out, u8 value) {
  return value <= 1 && add_field(out, &value, 1);
}

static int add_uuid(Buffer *out, const u8 *text, u32 size) {
  u8 bytes[UUID_BYTES];
  return uuid_bytes((Text){text, size}, bytes) && add_field(out, bytes, UUID_BYTES);
}

static int add_bytea(Buffer *out, const u8 *text, u32 size) {
  i64 bytes = base64_size((Text){text, size});
  if (bytes < 0) return 0;
  if (!field(out, 0)) return out->failed;
  write_be32(out->bytes + out->size - 4, (u32)bytes);
  return base64_bytes((Text){text, size}, out) || out->failed;
}

// The group of four digits at a place, of which `lacking` are not written in front of the first.
static u32 numeric_group(const u8 *text, u32 whole, u32 size, u32 group, u32 lacking) {
  u32 value = 0;
  for (u32 digit = group * NUMERIC_GROUP; digit < (group + 1) * NUMERIC_GROUP; digit++) {
    u32 at = digit - lacking + (digit >= whole + lacking);
    value = value * 10 + (digit < lacking || at >= size ? 0 : (u32)text[at] - '0');
  }
  return value;
}

// A decimal as the server has it: groups of four digits around the point, without zeros at either end.
static int add_numeric(Buffer *out, const u8 *text, u32 size) {
  u32 negative = size && *text == '-' ? NUMERIC_NEGATIVE : 0;
  text += negative != 0;
  size -= negative != 0;
  const u8 *point = memchr(text, '.', size);
  u32 whole = point ? (u32)(point - text) : size, scale = point ? size - whole - 1 : 0;
  u32 before = (whole + NUMERIC_GROUP - 1) / NUMERIC_GROUP, lacking = before * NUMERIC_GROUP - whole;
  u32 first = 0, last = before + (scale + NUMERIC_GROUP - 1) / NUMERIC_GROUP;
  if (!size || size > 2 * MOST_DIGITS) return 0;
  while (first < last && !numeric_group(text, whole, size, first, lacking)) first++;
  while (first < last && !numeric_group(text, whole, size, last - 1, lacking)) last--;
  u32 weight = first == last ? 0 : before - first - 1; // below zero behind the point
  u32 numbers[4] = {last - first, weight, negative, scale};
  u8 *at = field(out, NUMERIC_HEAD + 2 * (last - first));
  if (!at) return out->failed;
  for (u32 index = 0; index < 4 + last - first; index++) {
    u32 number = index < 4 ? numbers[index] : numeric_group(text, whole, size, first + index - 4, lacking);
    *at++ = (u8)(number >> 8);
    *at++ = (u8)number;
  }
  return 1;
}

static int add_jsonb(Buffer *out, const u8 *json, u32 size) {
  u8 *at = size < INT32_MAX ? field(out, size + 1) : NULL;
  if (!at) return out->failed;
  *at = 1; // the version of the form
  memcpy(at + 1, json, size);
  return 1;
}

// ------------------------------------------------------------------------------------------------ arrays

typedef struct {
  const u8 *at, *end;
} Json;

// The code point of \uXXXX, whose digits begin at `at`; -1 for what the canonical form does not escape so.
static i32 escaped_point(const Json *json, const u8 *at) {
  i32 point = 0;
  if (json->end - at < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(at[i]);
    if (digit < 0) return -1;
    point = point << 4 | digit;
  }
  return point > 0 && point < 0x20 ? point : -1;
}

// The byte of an escape, whose backslash lies behind; 0 for one that the canonical form does not have.
static u8 escaped(Json *json) {
  static const char names[] = "\"\\bfnrt", bytes[] = "\"\\\b\f\n\r\t";
  u8 name = json->at < json->end ? *json->at++ : 0;
  if (name == 'u') {
    i32 point = escaped_point(json, json->at);
    json->at += point < 0 ? 0 : 4;
    return point < 0 ? 0 : (u8)point;
  }
  const char *found = name ? strchr(names, name) : NULL;
  return found ? (u8)bytes[found - names] : 0;
}

// Adds a text of JSON, whose quote is next, as a field.
static int add_item_text(Buffer *out, Json *json) {
  size_t start = out->size;
  if (json->at == json->end || *json->at++ != '"') return 0;
  if (!field(out, 0)) return out->failed;
  while (json->at < json->end && *json->at != '"') {
    u8 byte = *json->at++;
    if (byte == '\\') byte = escaped(json);
    if (!byte) return 0;
    buffer_add_byte(out, byte);
  }
  if (json->at == json->end) return 0;
  json->at++;
  if (!out->failed) write_be32(out->bytes + start, (u32)(out->size - start - 4));
  return 1;
}

static int read_integer(Json *json, i64 *value) {
  int negative = json->at < json->end && *json->at == '-';
  u64 found = 0, most = (u64)INT64_MAX + (negative ? 1 : 0);
  const u8 *start = json->at += negative;
  for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
    u64 digit = *json->at - '0';
    if (found > (most - digit) / 10) return 0;
    found = found * 10 + digit;
  }
  *value = negative ? (i64)(0 - found) : (i64)found;
  return json->at != start;
}

static int add_item(Buffer *out, Json *json, u32 type) {
  i64 value = 0;
  if (type == OID_TEXT) return add_item_text(out, json);
  if (!read_integer(json, &value)) return 0;
  return type == OID_INT4 ? add_int4(out, value) : add_be64(out, (u64)value);
}

// Adds a canonical JSON list as an array.
static int add_array(Buffer *out, const u8 *bytes, u32 size, u32 type) {
  Json json = {bytes + 1, bytes + size};
  size_t start = out->size;
  if (size < 2 || bytes[0] != '[' || bytes[size - 1] != ']') return 0;
  u8 *head = field(out, size == 2 ? EMPTY_HEAD : ARRAY_HEAD);
  if (!head) return out->failed;
  memset(head, 0, size == 2 ? EMPTY_HEAD : ARRAY_HEAD);
  write_be32(head + 8, type);
  if (size == 2) return 1;
  u32 items = 0;
  do {
    if (!add_item(out, &json, type)) return 0;
    items++;
  } while (json.at < json.end && *json.at++ == ',');
  if (json.at != json.end || out->failed) return out->failed;
  head = out->bytes + start + 4;
  write_be32(head - 4, (u32)(out->size - start - 4));
  write_be32(head, 1);
  write_be32(head + 12, items);
  write_be32(head + 16, 1);
  return 1;
}

// ----------------------------------------------------------------------------------------------- payload

static int add_json_value(Buffer *out, const Node *node, const Packed *value) {
  double number;
  int plain = 0;
  Text text = {value->bytes, value->size};
  if (value->tag == TAG_ENUM) {
    if (*value->bytes >= node->member_count) return 0;
    text = node->members[*value->bytes].text;
  }
  switch (value->tag) {
  case TAG_ENUM:
  case TAG_TEXT:
    text_points(text, &plain);
    json_text(out, text, plain);
    return 1;
  case TAG_INT: json_int(out, read_i64(value->bytes)); return 1;
  case TAG_FLAG: buffer_add(out, *value->bytes ? "true" : "false", *value->bytes ? 4 : 5); return 1;
  case TAG_INSTANT: json_instant(out, read_i64(value->bytes)); return 1;
  case TAG_JSON: buffer_add(out, value->bytes, value->size); return 1;
  case TAG_NUMBER: memcpy(&number, value->bytes, sizeof number); return json_number(out, number);
  default: return 0;
  }
}

// The model as JSON, from the slots of its fields.
static int add_payload(const Columns *columns, Buffer *out, const Packed *values) {
  const Program *program = columns->program;
  size_t start = out->size;
  u8 *version = field(out, 1);
  if (!version) return 1;
  *version = 1;
  buffer_add_byte(out, '{');
  int first = 1;
  for (u32 index = 0; index < program->field_count; index++) {
    u32 slot = root_of(program)->written[index];
    if (values[slot].tag == TAG_ABSENT) continue;
    if (!first) buffer_add_byte(out, ',');
    first = 0;
    buffer_add(out, columns->names[slot].bytes, columns->names[slot].size);
    if (!add_json_value(out, node_of(program, slot), &values[slot])) return 0;
  }
  buffer_add_byte(out, '}');
  if (!out->failed) write_be32(out->bytes + start, (u32)(out->size - start - 4));
  return 1;
}

// -------------------------------------------------------------------------------------------------- rows

static const u8 tags[COLUMN_KINDS] = {
    [COLUMN_TEXT] = TAG_TEXT,   [COLUMN_INT2] = TAG_INT,    [COLUMN_INT4] = TAG_INT,
    [COLUMN_INT8] = TAG_INT,    [COLUMN_JSONB] = TAG_JSON,  [COLUMN_TIMESTAMPTZ] = TAG_INSTANT,
    [COLUMN_BOOL] = TAG_FLAG,   [COLUMN_TEXTS] = TAG_JSON,  [COLUMN_INT4S] = TAG_JSON,
    [COLUMN_INT8S] = TAG_JSON,  [COLUMN_UUID] = TAG_TEXT,   [COLUMN_FLOAT8] = TAG_NUMBER,
    [COLUMN_ENUM] = TAG_ENUM,   [COLUMN_NUMERIC] = TAG_TEXT, [COLUMN_BYTEA] = TAG_TEXT,
};

// 0 where the column does not hold the value.
static int add_value(const Column *column, Buffer *out, const Packed *value) {
  if (value->tag == TAG_ABSENT) {
    buffer_add(out, column->absent.bytes, column->absent.size);
    return column->absent.size > 0;
  }
  if (value->tag != tags[column->kind]) return 0;
  switch (column->kind) {
  case COLUMN_TEXT: return add_text(out, value->bytes, value->size);
  case COLUMN_INT2: return add_int2(out, read_i64(value->bytes));
  case COLUMN_INT4: return add_int4(out, read_i64(value->bytes));
  case COLUMN_INT8: return add_be64(out, (u64)read_i64(value->bytes));
  case COLUMN_JSONB: return add_jsonb(out, value->bytes, value->size);
  case COLUMN_TIMESTAMPTZ: return add_instant(out, read_i64(value->bytes));
  case COLUMN_BOOL: return add_flag(out, *value->bytes);
  case COLUMN_TEXTS: return add_array(out, value->bytes, value->size, OID_TEXT);
  case COLUMN_INT4S: return add_array(out, value->bytes, value->size, OID_INT4);
  case COLUMN_INT8S: return add_array(out, value->bytes, value->size, OID_INT8);
  case COLUMN_FLOAT8: return add_be64(out, (u64)read_i64(value->bytes));
  case COLUMN_UUID: return add_uuid(out, value->bytes, value->size);
  case COLUMN_NUMERIC: return add_numeric(out, value->bytes, value->size);
  case COLUMN_BYTEA: return add_bytea(out, value->bytes, value->size);
  case COLUMN_ENUM:
    if (*value->bytes >= column->member_count) return 0;
    buffer_add(out, column->members[*value->bytes].bytes, column->members[*value->bytes].size);
    return 1;
  default: return 0;
  }
}

static int add_row(const Columns *columns, Buffer *out, const Packed *values) {
  u8 count[2] = {(u8)(columns->count >> 8), (u8)columns->count};
  buffer_add(out, count, sizeof count);
  for (u32 i = 0; i < columns->count; i++) {
    const Column *column = &columns->columns[i];
    if (column->kind == COLUMN_PAYLOAD) {
      if (!add_payload(columns, out, values)) return 0;
    } else if (column->slot < 0 || !add_value(column, out, &values[column->slot])) {
      return 0;
    }
  }
  return 1;
}

TS_API i64 ts_write_copy(const Columns *columns, const u8 *rows, size_t size, Buffer *out) {
  Packed values[MOST_SLOTS];
  const u8 *at = rows, *end = rows + size;
  i64 count = 0;
  for (; at < end; count++) {
    at = packed_row(columns->program, at, end, values);
    if (!at || !add_row(columns, out, values)) return out->failed ? TS_NO_MEMORY : TS_BROKEN;
  }
  return out->failed ? TS_NO_MEMORY : count;
}
