// Packed rows become documents, byte for byte as the driver would encode them.
#include <stdlib.h>

#include "copier/checker.h"
#include "copier/documents.h"
#include "copier/packed.h"
#include "copier/text.h"
#include "copier/transcode.h"
#include "copier/typed.h"

// Rows beyond it take the exact way, which bounds what they take as objects; no document comes near the limit of a server.
#define LARGEST_ROW 250000
#define IDENTITY_BYTES 12
#define ID ((Text){(const u8 *)"_id", 3})
#define VERSION ((Text){(const u8 *)"_version", 8})
#define FIRST_VERSION 1

typedef struct {
  const Documents *documents;
  const Packed *values;
  Transcoder transcoder;
  Buffer *out;
} Writer;

// A number without a fraction is stored as an integer, as the model holds it.
static u8 add_number(Buffer *out, const u8 *bytes) {
  double value;
  memcpy(&value, bytes, sizeof value);
  // Both bounds are exact; beyond them a whole number does not fit into 64 bits.
  if (value >= -9223372036854775808.0 && value < 9223372036854775808.0 && value == (double)(i64)value)
    return bson_add_int(out, (i64)value, 0);
  if (value - value != 0 || value >= 9223372036854775808.0 || value < -9223372036854775808.0) return 0;
  buffer_add(out, &value, sizeof value);
  return BSON_DOUBLE;
}

static u8 add_member(Writer *writer, const Node *node, u8 position) {
  return position < node->member_count ? bson_add_text(writer->out, node->members[position].text) : 0;
}

// Adds the value of a slot; answers its type, 0 where it is declined.
static u8 add_value(Writer *writer, const Node *node, const Packed *value, u8 is_long) {
  switch (value->tag) {
  case TAG_TEXT:
    if (is_typed(node)) return typed_value(node, (Text){value->bytes, value->size}, writer->out);
    return bson_add_text(writer->out, (Text){value->bytes, value->size});
  case TAG_INT:
    return bson_add_int(writer->out, read_i64(value->bytes), is_long);
  case TAG_FLAG:
    buffer_add_byte(writer->out, *value->bytes != 0);
    return BSON_FLAG;
  case TAG_INSTANT:
    buffer_add_i64(writer->out, read_i64(value->bytes));
    return BSON_INSTANT;
  case TAG_JSON:
    writer->transcoder.is_long = is_long;
    return transcode(&writer->transcoder, node, (Text){value->bytes, value->size});
  case TAG_ENUM:
    return add_member(writer, node, *value->bytes);
  case TAG_NUMBER:
    return add_number(writer->out, value->bytes);
  default:
    return 0;
  }
}

static int add_slot(Writer *writer, u32 slot, Text name, u8 is_long) {
  size_t start = bson_begin(writer->out, 0, name);
  u8 type = add_value(writer, node_of(writer->documents->program, slot), &writer->values[slot], is_long);
  if (type && !writer->out->failed) writer->out->bytes[start] = type;
  return type;
}

// The decimal digits of a number as a text, written into `digits`.
static Text number_text(i64 value, u8 digits[24]) {
  u64 rest = value < 0 ? 0 - (u64)value : (u64)value;
  u32 at = 24;
  do {
    digits[--at] = (u8)('0' + rest % 10);
    rest /= 10;
  } while (rest);
  if (value < 0) digits[--at] = '-';
  return (Text){digits + at, 24 - at};
}

// A part of the key as text; its size is UINT32_MAX where it is neither a text nor an integer.
static Text key_part(const Writer *writer, u32 index, u8 digits[24]) {
  const Packed *value = &writer->values[writer->documents->program->key[index]];
  if (value->tag == TAG_INT) return number_text(read_i64(value->bytes), digits);
  if (value->tag != TAG_TEXT) return (Text){digits, UINT32_MAX};
  return (Text){value->bytes, value->size};
}

// Whether the parts can be told apart where colons stand between them; a number has none, so that a text in front of one may.
static int joins_plainly(const Writer *writer) {
  const Program *program = writer->documents->program;
  u32 heads = program->key_count - 1;
  u8 digits[24];
  if (heads == 1 && writer->values[program->key[heads]].tag == TAG_INT) return 1;
  for (u32 index = 0; index < heads; index++) {
    Text part = key_part(writer, index, digits);
    if (!part.size || memchr(part.bytes, ':', part.size)) return 0;
  }
  return 1;
}

// Adds the `_id` that joins the parts of the key, see joined_id of the driver.
static int add_joined(Writer *writer) {
  const Program *program = writer->documents->program;
  Buffer *out = writer->out;
  u8 digits[24], length[24];
  for (u32 index = 0; index < program->key_count; index++)
    if (key_part(writer, index, digits).size == UINT32_MAX) return 0;
  int plain = joins_plainly(writer);
  bson_begin(out, BSON_TEXT, ID);
  size_t start = out->size;
  buffer_add_u32(out, 0);
  for (u32 index = 0; index < program->key_count; index++) {
    Text part = key_part(writer, index, digits);
    int unused;
    Text told = number_text(text_points(part, &unused), length);
    if (index || !plain) buffer_add_byte(out, ':');
    if (!plain) buffer_add(out, told.bytes, told.size);
    if (!plain) buffer_add_byte(out, ':');
    buffer_add(out, part.bytes, part.size);
  }
  buffer_add_byte(out, 0);
  if (!out->failed) write_u32(out->bytes + start, (u32)(out->size - start - 4));
  return 1;
}

static int add_identity(Writer *writer, const u8 *id) {
  const Documents *documents = writer->documents;
  if (documents->identity == IDENTITY_JOINED) return add_joined(writer);
  if (documents->identity == IDENTITY_SLOT) {
    u32 slot = (u32)documents->id_slot;
    return add_slot(writer, slot, ID, documents->slots[slot].is_long);
  }
  if (!id) return 0;
  bson_begin(writer->out, BSON_ID, ID);
  buffer_add(writer->out, id, IDENTITY_BYTES);
  return 1;
}

static int add_document(Writer *writer, const u8 *id) {
  const Documents *documents = writer->documents;
  Buffer *out = writer->out;
  size_t start = out->size;
  buffer_add_u32(out, 0);
  if (!add_identity(writer, id)) return 0;
  for (u32 slot = 0; slot < documents->program->slot_count; slot++) {
    if (writer->values[slot].tag == TAG_ABSENT || (i32)slot == documents->id_slot) continue;
    if (!add_slot(writer, slot, documents->slots[slot].name, documents->slots[slot].is_long)) return 0;
  }
  if (documents->versioned) {
    bson_begin(out, BSON_LONG, VERSION);
    buffer_add_i64(out, FIRST_VERSION);
  }
  bson_end(out, start);
  return 1;
}

static i64 write_documents(Writer *writer, const u8 *rows, size_t size, const u8 *ids, Packed *values, Buffer *places,
                           Buffer *declined) {
  const u8 *at = rows, *end = rows + size;
  i64 written = 0;
  if (size > UINT32_MAX) return TS_BROKEN;
  for (u32 row = 0; at < end; row++) {
    size_t start = writer->out->size;
    const u8 *next = packed_row(writer->documents->program, at, end, values);
    if (!next) return TS_BROKEN;
    if (next - at <= LARGEST_ROW && add_document(writer, ids ? ids + (size_t)row * IDENTITY_BYTES : NULL)) {
      buffer_add_u32(places, (u32)writer->out->size);
      buffer_add_u32(places, (u32)(at - rows));
      buffer_add_u32(places, (u32)(next - rows));
      written++;
    } else {
      writer->out->size = start;
      buffer_add_u32(declined, row);
    }
    // Places have 32 bits.
    if (writer->out->size > UINT32_MAX) return TS_BROKEN;
    if (writer->out->failed || places->failed || declined->failed) return TS_NO_MEMORY;
    at = next;
  }
  return written;
}

TS_API i64 ts_write_documents(const Documents *documents, const u8 *rows, size_t size, const u8 *ids, Buffer *out, Buffer *places,
                              Buffer *declined) {
  Buffer members = {0};
  Packed *values = calloc(documents->program->slot_count + 1, sizeof(Packed));
  if (!values) return TS_NO_MEMORY;
  Writer writer = {
      .documents = documents,
      .values = values,
      .transcoder = {.program = documents->program, .out = out, .members = &members},
      .out = out,
  };
  i64 written = write_documents(&writer, rows, size, ids, values, places, declined);
  free(values);
  free(members.bytes);
  return members.failed ? TS_NO_MEMORY : written;
}

TS_API i64 ts_highest(const Program *program, const u8 *rows, size_t size, u32 slot, i64 *highest) {
  const u8 *end = rows + size;
  Packed *values = slot < program->slot_count ? calloc(program->slot_count, sizeof(Packed)) : NULL;
  i64 found = 0;
  *highest = 0;
  if (!values) return slot < program->slot_count ? TS_NO_MEMORY : TS_BROKEN;
  while (rows && rows < end) {
    rows = packed_row(program, rows, end, values);
    if (!rows || values[slot].tag != TAG_INT) continue;
    i64 value = read_i64(values[slot].bytes);
    if (value > *highest) *highest = value;
    found++;
  }
  free(values);
  return rows || !size ? found : TS_BROKEN;
}
