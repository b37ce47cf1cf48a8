#include "copier/checker.h"

#include "copier/cron.h"
#include "copier/judging.h"
#include "copier/text.h"
#include "copier/typed.h"

// Doubles have every whole number up to here.
#define MOST_EXACT ((i64)1 << 53)

static i64 binary_size(const u8 *bytes, i64 room) {
  i64 size = room < 5 ? -1 : (i64)read_u32(bytes);
  return size < 0 || size > INT32_MAX || size > room - 5 ? -1 : 5 + size;
}

// Two texts that end with zero.
static i64 pattern_size(const u8 *bytes, i64 room) {
  const u8 *first = memchr(bytes, 0, (size_t)room);
  const u8 *second = first ? memchr(first + 1, 0, (size_t)(bytes + room - first - 1)) : NULL;
  return second ? second + 1 - bytes : -1;
}

i64 bson_size(u8 type, const u8 *bytes, const u8 *end) {
  i64 room = end - bytes, size = -1;
  switch (type) {
    case BSON_TEXT:
    case BSON_CODE: return text_size(bytes, room);
    case BSON_SCOPED_CODE: size = room < 4 ? -1 : (i64)read_u32(bytes); return size < 4 || size > room ? -1 : size;
    case BSON_OBJECT:
    case BSON_ARRAY: size = document_size(bytes, (size_t)room); return size ? size : -1;
    case BSON_BINARY: return binary_size(bytes, room);
    case BSON_PATTERN: return pattern_size(bytes, room);
    case BSON_DECIMAL: size = 16; break;
    case BSON_DOUBLE:
    case BSON_INSTANT:
    case BSON_STAMP:
    case BSON_LONG: size = 8; break;
    case BSON_INT: size = 4; break;
    case BSON_FLAG: size = 1; break;
    case BSON_ID: size = 12; break;
    case BSON_LEAST:
    case BSON_GREATEST:
    case BSON_NULL: size = 0; break;
    default: return -1;
  }
  return size <= room ? size : -1;
}

static int is_hex(u8 byte) { return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f'); }

static int is_digest(Text text) {
  if (text.size != 71 || memcmp(text.bytes, "sha256:", 7)) return 0;
  for (u32 at = 7; at < 71; at++)
    if (!is_hex(text.bytes[at])) return 0;
  return 1;
}

static int is_identifier(Text text) {
  for (u32 at = 0; at < text.size; at++) {
    u8 byte = text.bytes[at];
    int is_mark = byte == '.' || byte == '_' || byte == ':' || byte == '-';
    if (!((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (at && is_mark))) return 0;
  }
  return text.size > 0;
}

static int is_tenant(Text text) {
  return text.size && !memchr(text.bytes, ':', text.size) && !text_equal(text, (Text){(const u8 *)"system", 6});
}

static int is_of_template(Text text, Text template) {
  if (text.size != template.size) return 0;
  for (u32 at = 0; at < text.size; at++)
    if (template.bytes[at] == HEX_DIGIT ? !is_hex(text.bytes[at]) : text.bytes[at] != template.bytes[at]) return 0;
  return 1;
}

static int is_listed(Text text, const Node *node) {
  u32 low = 0, high = node->member_count;
  while (low < high) {
    u32 middle = low + (high - low) / 2;
    int order = text_compare(text, node->members[middle].text);
    if (!order) return 1;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return 0;
}

// What texts of few fields are asked for.
static int is_of_form(const Node *node, Text text) {
  u32 flags = node->flags;
  if ((flags & TEXT_DIGEST) && !is_digest(text)) return 0;
  if ((flags & TEXT_IDENTIFIER) && !is_identifier(text)) return 0;
  if ((flags & TEXT_LOWER) && !text_is_lower(text)) return 0;
  if ((flags & TEXT_TEMPLATE) && !is_of_template(text, node->members[0].text)) return 0;
  if ((flags & TEXT_LISTED) && !is_listed(text, node)) return 0;
  return !(flags & TEXT_CRON) || text_is_cron(text);
}

int text_fits(const Node *node, Text text, i64 points, int plain) {
  u32 flags = node->flags;
  if (node->high >= 0 && points > node->high) return 0;
  // No text may hold U+0000, whatever its node asks for: tables have none.
  if (!plain && memchr(text.bytes, 0, text.size)) return 0;
  if ((flags & TEXT_NONEMPTY) && !text.size) return 0;
  if ((flags & TEXT_TRIM) && !text_is_trimmed(text)) return 0;
  if ((flags & TEXT_NO_CONTROL) && !plain && text_has_control(text)) return 0;
  if ((flags & TEXT_TENANT) && !is_tenant(text)) return 0;
  return flags < TEXT_DIGEST || is_of_form(node, text);
}

static int check_text(const Node *node, const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_TEXT) return 0;
  int plain;
  value->text = text_in(element);
  i64 points = text_points(value->text, &plain);
  if (points < 0 || !text_fits(node, value->text, points, plain)) return 0;
  if (out) json_text(out, value->text, plain);
  return 1;
}

static int check_member(const Node *node, const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_TEXT) return 0;
  Text text = text_in(element);
  for (u32 index = 0; index < node->member_count; index++) {
    if (!text_equal(text, node->members[index].text)) continue;
    value->number = index;
    value->text = node->members[index].text;
    int plain;
    if (text_points(text, &plain) < 0) return 0;
    if (out) json_text(out, text, plain);
    return 1;
  }
  return 0;
}

static int whole(const Element *element, i64 *number) {
  if (element->type == BSON_INT) *number = (i32)read_u32(element->bytes);
  else if (element->type == BSON_LONG) *number = read_i64(element->bytes);
  else return 0;
  return 1;
}

static int check_int(const Node *node, const Element *element, Value *value, Buffer *out) {
  if (!whole(element, &value->number) || value->number < node->low || value->number > node->high) return 0;
  if (out) json_int(out, value->number);
  return 1;
}

static int check_flag(const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_FLAG || *element->bytes > 1) return 0;
  value->number = *element->bytes;
  if (out) buffer_add(out, value->number ? "true" : "false", value->number ? 4 : 5);
  return 1;
}

static int check_instant(const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_INSTANT) return 0;
  value->number = read_i64(element->bytes);
  if (value->number < LEAST_INSTANT || value->number > MOST_INSTANT) return 0;
  if (out) json_instant(out, value->number);
  return 1;
}

static int check_number(const Element *element, Value *value, Buffer *out) {
  i64 number;
  if (whole(element, &number)) {
    if (number > MOST_EXACT || number < -MOST_EXACT) return 0;
    value->real = (double)number;
  } else if (element->type == BSON_DOUBLE) {
    memcpy(&value->real, element->bytes, sizeof value->real);
  } else {
    return 0;
  }
  return json_number(out, value->real);
}

static int check_typed(const Node *node, const Element *element, Buffer *out) {
  buffer_add_byte(out, '"');
  if (!typed_text(node, element, out)) return 0;
  buffer_add_byte(out, '"');
  return 1;
}

static int check_nested(Checker *checker, const Node *node, const Element *element, Value *value, Buffer *out) {
  switch (node->kind) {
    case NODE_OBJECT: return check_object(checker, node, element, value, out);
    case NODE_LIST: return check_list(checker, node, element, value, out);
    case NODE_MAP: return check_map(checker, node, element, out);
    default: return check_json(checker, node, element, out);
  }
}

int check_value(Checker *checker, u32 number, const Element *element, Value *value, Buffer *out) {
  const Node *node = &checker->program->nodes[number];
  value->present = 1;
  // No description has one in a map.
  if (is_typed(node)) return out && !checker->maps && check_typed(node, element, out);
  switch (node->kind) {
    case NODE_TEXT: return check_text(node, element, value, out);
    case NODE_ENUM:
    case NODE_CONST: return check_member(node, element, value, out);
    case NODE_INT: return check_int(node, element, value, out);
    case NODE_FLAG: return check_flag(element, value, out);
    // Who reads documents the exact way looks for no instants in maps.
    case NODE_INSTANT: return !checker->maps && check_instant(element, value, out);
    case NODE_NUMBER: return check_number(element, value, out);
    default: break;
  }
  if (checker->depth >= MOST_DEPTH) return 0;
  size_t begin = out->size;
  checker->depth++;
  int taken = check_nested(checker, node, element, value, out);
  checker->depth--;
  if (node->kind == NODE_OBJECT) {
    value->json_at = begin;
    value->json_size = (u32)(out->size - begin);
  }
  return taken;
}
