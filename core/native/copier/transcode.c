#include "copier/transcode.h"

#include <math.h>
#include <stdlib.h>

#include "copier/checker.h"
#include "copier/packed.h"
#include "copier/text.h"
#include "copier/typed.h"

#define LONGEST_NUMBER 40
#define SURELY_KEPT 16 // a point and 15 digits, which a double keeps
#define DATE ((Text){(const u8 *)"$date", 5})

static u8 read_value(Transcoder *t, const Node *node);

static inline void skip_blanks(Transcoder *t) {
  while (t->at < t->end && *t->at == ' ') t->at++;
}

static inline int take(Transcoder *t, u8 wanted) {
  if (t->at == t->end || *t->at != wanted) return 0;
  t->at++;
  return 1;
}

static int take_word(Transcoder *t, const char *word, size_t size) {
  if ((size_t)(t->end - t->at) < size || memcmp(t->at, word, size)) return 0;
  t->at += size;
  return 1;
}

// Servers and canonical JSON escape nothing but quotes, backslashes and control characters.
static int add_escaped(Transcoder *t) {
  static const char names[] = "\"\\bfnrt", means[] = "\"\\\b\f\n\r\t";
  if (t->at == t->end) return 0;
  const char *found = *t->at ? strchr(names, *t->at) : NULL;
  if (found) {
    t->at++;
    buffer_add_byte(t->out, (u8)means[found - names]);
    return 1;
  }
  if (!take_word(t, "u00", 3) || t->end - t->at < 2) return 0;
  static const char digits[] = "0123456789abcdef";
  const char *high = t->at[0] == '0' || t->at[0] == '1' ? digits : NULL;
  const char *low = t->at[1] ? strchr(digits, t->at[1]) : NULL;
  u8 code = high && low ? (u8)((t->at[0] - '0') * 16 + (low - digits)) : 0;
  t->at += 2;
  buffer_add_byte(t->out, code);
  return code != 0;
}

// Adds the characters of a text, of which the opening quote was read.
static int add_text(Transcoder *t) {
  for (;;) {
    const u8 *start = t->at;
    while (t->at < t->end && *t->at != '"' && *t->at != '\\' && *t->at >= ' ') t->at++;
    buffer_add(t->out, start, (size_t)(t->at - start));
    if (t->at == t->end || *t->at < ' ') return 0;
    if (*t->at++ == '"') return 1;
    if (!add_escaped(t)) return 0;
  }
}

static u8 read_instant_text(Transcoder *t) {
  const u8 *close = memchr(t->at, '"', (size_t)(t->end - t->at));
  i64 milliseconds;
  if (!close || close - t->at > UINT8_MAX) return 0;
  if (!read_instant((Text){t->at, (u32)(close - t->at)}, &milliseconds)) return 0;
  t->at = close + 1;
  buffer_add_i64(t->out, milliseconds);
  return BSON_INSTANT;
}

// Its text has no escapes.
static u8 read_typed(Transcoder *t, const Node *node) {
  const u8 *close = memchr(t->at, '"', (size_t)(t->end - t->at));
  if (!close) return 0;
  Text text = {t->at, (u32)(close - t->at)};
  t->at = close + 1;
  return typed_value(node, text, t->out);
}

static u8 read_text(Transcoder *t, const Node *node) {
  if (node && node->kind == NODE_INSTANT) return read_instant_text(t);
  if (node && is_typed(node)) return read_typed(t, node);
  size_t start = t->out->size;
  buffer_add_u32(t->out, 0);
  if (!add_text(t)) return 0;
  buffer_add_byte(t->out, 0);
  if (t->out->failed) return 0;
  write_u32(t->out->bytes + start, (u32)(t->out->size - start - 4));
  return BSON_TEXT;
}

static u8 read_flag(Transcoder *t) {
  u8 value = *t->at == 't';
  if (!(value ? take_word(t, "true", 4) : take_word(t, "false", 5))) return 0;
  buffer_add_byte(t->out, value);
  return BSON_FLAG;
}

static u32 count_digits(Transcoder *t) {
  const u8 *start = t->at;
  while (t->at < t->end && *t->at >= '0' && *t->at <= '9') t->at++;
  return (u32)(t->at - start);
}

// Whether a double is written with the digits that it was read from.
static int keeps_digits(Buffer *scratch, double value, const char *text, size_t size) {
  size_t before = scratch->size;
  int kept = json_number(scratch, value) && !scratch->failed && scratch->size - before == size
    && !memcmp(scratch->bytes + before, text, size);
  scratch->size = before;
  return kept;
}

// Reads the rest of a number that has a fraction or an exponent; the C library rounds it as Python does.
static u8 read_real(Transcoder *t, const u8 *start) {
  char text[LONGEST_NUMBER + 1];
  int has_exponent = 0;
  if (take(t, '.') && !count_digits(t)) return 0;
  if (t->at < t->end && (*t->at == 'e' || *t->at == 'E')) {
    t->at++;
    has_exponent = 1;
    if (!take(t, '-')) take(t, '+');
    if (!count_digits(t)) return 0;
  }
  size_t size = (size_t)(t->at - start);
  if (size > LONGEST_NUMBER) return 0;
  memcpy(text, start, size);
  text[size] = 0;
  char *end;
  double value = strtod(text, &end);
  // It stops at the point where the locale of the process has a comma.
  if (end != text + size || !isfinite(value)) return 0;
  // Servers write no exponents, and who does wrote the shortest text of a double.
  if (size > SURELY_KEPT && !has_exponent && !keeps_digits(t->out, value, text, size)) return 0;
  buffer_add(t->out, &value, sizeof value);
  return BSON_DOUBLE;
}

static u8 read_number(Transcoder *t) {
  const u8 *start = t->at;
  int negative = take(t, '-');
  const u8 *first = t->at;
  u32 count = count_digits(t);
  if (!count || (*first == '0' && count > 1)) return 0;
  if (t->at < t->end && (*t->at == '.' || *t->at == 'e' || *t->at == 'E')) return read_real(t, start);
  u64 value = 0;
  if (count > 19) return 0;
  for (const u8 *digit = first; digit < t->at; digit++) value = value * 10 + (u64)(*digit - '0');
  if (value > (u64)INT64_MAX + (u64)negative || (negative && !value)) return 0;
  return bson_add_int(t->out, (i64)(negative ? 0 - value : value), t->is_long);
}

static u8 read_list(Transcoder *t, const Node *node) {
  const Node *item = node && node->item >= 0 ? &t->program->nodes[node->item] : NULL;
  size_t start = t->out->size;
  buffer_add_u32(t->out, 0);
  skip_blanks(t);
  if (!take(t, ']')) {
    u32 index = 0;
    do {
      size_t place = bson_begin_item(t->out, index++);
      u8 type = read_value(t, item);
      if (!type || t->out->failed) return 0;
      t->out->bytes[place] = type;
    } while (take(t, ','));
    if (!take(t, ']')) return 0;
  }
  bson_end(t->out, start);
  return BSON_ARRAY;
}

// The node of a member, by its name, and of a model its field; `hint` tells how many fields are written up to the
// last one.
static int member_node(const Transcoder *t, const Node *node, const char *name, u32 *hint, u32 *number,
                       const Node **found) {
  *found = NULL;
  if (!node || node->kind == NODE_JSON) return 1;
  if (node->kind == NODE_MAP) {
    *found = node->item < 0 ? NULL : &t->program->nodes[node->item];
    return 1;
  }
  if (node->kind != NODE_OBJECT) return 0;
  size_t size = strlen(name);
  for (u32 count = 0; count < node->field_count; count++) {
    u32 index = (*hint + count) % node->field_count;
    const Field *field = &node->fields[node->written[index]];
    if (field->name.size == size && !memcmp(field->name.bytes, name, size)) {
      *hint = index + 1;
      *number = node->written[index];
      *found = &t->program->nodes[field->node];
      return 1;
    }
  }
  return 0;
}

static int read_member(Transcoder *t, const Node *node, u32 *hint) {
  Place place = {(u32)t->out->size, 0, 0};
  const Node *found;
  buffer_add_byte(t->out, 0);
  skip_blanks(t);
  if (!take(t, '"') || !add_text(t)) return 0;
  buffer_add_byte(t->out, 0);
  skip_blanks(t);
  if (t->out->failed || !take(t, ':')) return 0;
  if (!member_node(t, node, (const char *)t->out->bytes + place.start + 1, hint, &place.field, &found)) return 0;
  u8 type = read_value(t, found);
  if (!type || t->out->failed) return 0;
  t->out->bytes[place.start] = type;
  place.end = (u32)t->out->size;
  buffer_add(t->members, &place, sizeof place);
  return 1;
}

// Inside of free JSON an object with one name stands for a date; answers the type of what the object is.
static u8 read_date(Transcoder *t, size_t start) {
  const u8 *member = t->out->bytes + start + 4;
  const u8 *value = member + DATE.size + 2;
  i64 milliseconds;
  if (*member != BSON_TEXT || memcmp(member + 1, DATE.bytes, DATE.size + 1)) return BSON_OBJECT;
  if (!read_instant((Text){value + 4, read_u32(value) - 1}, &milliseconds)) return BSON_OBJECT;
  t->out->size = start;
  buffer_add_i64(t->out, milliseconds);
  return BSON_INSTANT;
}

// A map whose order the model keeps stays as it is, and the checker declines it where its names do not rise.
static int is_sorted_by_model(const Node *node) {
  return !node || node->kind != NODE_MAP || !(node->flags & KEPT_ORDER);
}

static u8 read_object(Transcoder *t, const Node *node) {
  size_t start = t->out->size, first = t->members->size;
  u32 hint = 0;
  buffer_add_u32(t->out, 0);
  skip_blanks(t);
  if (!take(t, '}')) {
    do {
      if (!read_member(t, node, &hint)) return 0;
    } while (take(t, ','));
    if (!take(t, '}')) return 0;
  }
  if (t->members->failed) return 0;
  Place *places = (Place *)(void *)(t->members->bytes + first);
  u32 count = (u32)((t->members->size - first) / sizeof(Place));
  t->members->size = first;
  if (is_sorted_by_model(node) && !sort_members(t->out, places, count)) return 0;
  bson_end(t->out, start);
  if (t->out->failed) return 0;
  return !node && count == 1 ? read_date(t, start) : BSON_OBJECT;
}

static u8 read_nested(Transcoder *t, const Node *node) {
  if (++t->depth > MOST_DEPTH) return 0;
  u8 type = *t->at++ == '{' ? read_object(t, node) : read_list(t, node);
  t->depth--;
  return type;
}

static u8 read_value(Transcoder *t, const Node *node) {
  skip_blanks(t);
  if (t->at == t->end) return 0;
  u8 type;
  switch (*t->at) {
  case '{':
  case '[':
    type = read_nested(t, node);
    break;
  case '"':
    t->at++;
    type = read_text(t, node);
    break;
  case 't':
  case 'f':
    type = read_flag(t);
    break;
  case 'n':
    type = take_word(t, "null", 4) ? BSON_NULL : 0;
    break;
  default:
    type = read_number(t);
  }
  skip_blanks(t);
  return type;
}

u8 transcode(Transcoder *t, const Node *node, Text json) {
  t->at = json.bytes;
  t->end = json.bytes + json.size;
  t->depth = 0;
  t->members->size = 0;
  u8 type = read_value(t, node);
  return t->at == t->end && !t->out->failed ? type : 0;
}
