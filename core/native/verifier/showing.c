#include "verifier/showing.h"

#include <stdlib.h>

#include "verifier/values.h"

#define FEW 32 // which are sorted faster by moving each to its place
#define DATE_HEAD "{\"$date\":"

int show_order(Span left, Span right) {
  // Most names differ in their first byte already, and a call takes longer than to look.
  if (left.size && right.size && *left.bytes != *right.bytes) return *left.bytes < *right.bytes ? -1 : 1;
  size_t shorter = left.size < right.size ? left.size : right.size;
  int order = shorter ? memcmp(left.bytes, right.bytes, shorter) : 0;
  return order ? order : (left.size > right.size) - (left.size < right.size);
}

static int by_name(const void *left, const void *right) {
  return show_order(((const Element *)left)->name, ((const Element *)right)->name);
}

static void sort_few(Element *elements, size_t count) {
  for (size_t i = 1; i < count; i++) {
    Element moved = elements[i];
    size_t to = i;
    while (to && show_order(elements[to - 1].name, moved.name) > 0) to--;
    memmove(elements + to + 1, elements + to, (i - to) * sizeof *elements);
    elements[to] = moved;
  }
}

int show_sort(Element *elements, size_t count) {
  if (count <= FEW)
    sort_few(elements, count);
  else
    qsort(elements, count, sizeof *elements, by_name);
  for (size_t i = 1; i < count; i++)
    if (!show_order(elements[i - 1].name, elements[i].name)) return 0;
  return 1;
}

// The client takes an object with such a name for a reference, and a comparison takes one for a typed value.
static int is_special(Span name) { return name.size && *name.bytes == '$'; }

int show_collect(Shower *shower, Elements *elements) {
  Element element;
  int found;
  while ((found = bson_next(elements, &element)) > 0) {
    if (shower->used == SCAN_NAMES || is_special(element.name)) return 0;
    shower->elements[shower->used++] = element;
  }
  return !found;
}

static const Spot *spot_of(const Shower *shower, u32 place) { return shower->form->spots + place; }

static u32 place_of(const Shower *shower, u32 place, const Element *element, u32 *next) {
  const Spot *spot = spot_of(shower, place);
  if (spot->kind == PLACE_MAP || spot->kind == PLACE_FREE) return spot->item;
  const Member *member = shower->form->members + spot->first + *next;
  // Both stand in the order of their names.
  for (; *next < spot->count && show_order(member->name, element->name) < 0; member++) ++*next;
  return *next < spot->count && !show_order(member->name, element->name) ? member->place : 0;
}

static int show_members(Shower *shower, size_t first, size_t count, u32 place, int depth) {
  u32 next = 0;
  buffer_add_byte(shower->out, '{');
  for (size_t i = first; i < first + count; i++) {
    const Element *element = shower->elements + i;
    if (i > first) buffer_add_byte(shower->out, ',');
    if (!scan_text(shower->out, element->name.bytes, element->name.size)) return 0;
    buffer_add_byte(shower->out, ':');
    if (!show_value(shower, element, place_of(shower, place, element, &next), depth)) return 0;
  }
  buffer_add_byte(shower->out, '}');
  return 1;
}

static int show_object(Shower *shower, Span document, u32 place, int depth) {
  Elements elements;
  size_t first = shower->used;
  if (!bson_elements(&elements, document) || !show_collect(shower, &elements)) return 0;
  size_t count = shower->used - first;
  if (!show_sort(shower->elements + first, count) || !show_members(shower, first, count, place, depth)) return 0;
  shower->used = first;
  return 1;
}

int show_is_number(Span name, u32 number) {
  u8 text[10];
  size_t at = sizeof text;
  do text[--at] = (u8)('0' + number % 10);
  while (number /= 10);
  return name.size == sizeof text - at && !memcmp(name.bytes, text + at, name.size);
}

static int show_list(Shower *shower, Span list, u32 place, int depth) {
  Elements elements;
  Element item;
  int found;
  if (!bson_elements(&elements, list)) return 0;
  buffer_add_byte(shower->out, '[');
  for (u32 number = 0; (found = bson_next(&elements, &item)); number++) {
    if (found < 0 || !show_is_number(item.name, number)) return 0;
    if (number) buffer_add_byte(shower->out, ',');
    if (!show_value(shower, &item, place, depth)) return 0;
  }
  buffer_add_byte(shower->out, ']');
  return 1;
}

static int show_text(Shower *shower, const Element *element) {
  Span text;
  return bson_text(element, &text) && scan_text(shower->out, text.bytes, text.size);
}

static int show_flag(Shower *shower, u8 flag) {
  if (flag > 1) return 0;
  buffer_add(shower->out, flag ? "true" : "false", flag ? 4 : 5);
  return 1;
}

static int show_double(Shower *shower, const u8 *bytes) {
  double value;
  memcpy(&value, bytes, sizeof value);
  return scan_fraction(shower->out, value);
}

static int show_wide(Shower *shower, i64 value) {
  scan_integer(shower->out, value);
  return 1;
}

// An integer that fits into 32 bits has as many, but where a table has a column of 64.
static int show_long(Shower *shower, i64 value) {
  return (value < INT32_MIN || value > INT32_MAX) && show_wide(shower, value);
}

static int show_free_date(Shower *shower, i64 milliseconds) {
  buffer_add(shower->out, DATE_HEAD, sizeof DATE_HEAD - 1);
  if (!scan_instant(shower->out, milliseconds)) return 0;
  buffer_add_byte(shower->out, '}');
  return 1;
}

#define UUID_BYTES 16
#define UUID_SUBTYPE 4
#define BINARY_HEAD 5 // length and subtype

static Span binary_in(const Element *element, u8 subtype) {
  const Span value = element->value;
  if (element->type != BSON_BINARY || value.bytes[BINARY_HEAD - 1] != subtype) return (Span){NULL, 0};
  return (Span){value.bytes + BINARY_HEAD, value.size - BINARY_HEAD};
}

Span show_digits(u8 kind, const Element *element, u8 text[SHOW_DIGITS]) {
  Span bytes = kind == PLACE_UUID ? binary_in(element, UUID_SUBTYPE) : element->value;
  size_t to = 0;
  if (kind == PLACE_UUID ? bytes.size != UUID_BYTES : element->type != BSON_OBJECT_ID) return (Span){NULL, 0};
  for (size_t at = 0; at < bytes.size; at++) {
    if (kind == PLACE_UUID && (at == 4 || at == 6 || at == 8 || at == 10)) text[to++] = '-';
    text[to++] = (u8)"0123456789abcdef"[bytes.bytes[at] >> 4];
    text[to++] = (u8)"0123456789abcdef"[bytes.bytes[at] & 15];
  }
  return (Span){text, to};
}

static int show_id(Shower *shower, u8 kind, const Element *element) {
  u8 text[SHOW_DIGITS];
  Span digits = show_digits(kind, element, text);
  return digits.bytes && scan_text(shower->out, digits.bytes, digits.size);
}

static int show_bytes(Shower *shower, const Element *element) {
  Span bytes = binary_in(element, 0);
  if (!bytes.bytes) return 0;
  scan_base64(shower->out, bytes.bytes, bytes.size);
  return 1;
}

// ---- decimals: a sign, an exponent of 14 bits, and 113 bits of which no client writes more than 34 digits

#define MOST_DIGITS 34
#define LEAST_EXPONENT (-MOST_DIGITS)
#define EXPONENT_BIAS 6176

// Divides a number of four parts of 32 bits, the highest one first, by ten and answers what is left.
static u32 by_ten(u32 parts[4]) {
  u64 left = 0;
  for (int part = 0; part < 4; part++) {
    left = left << 32 | parts[part];
    parts[part] = (u32)(left / 10);
    left %= 10;
  }
  return (u32)left;
}

static int show_decimal(Shower *shower, const u8 *bytes) {
  u8 text[2 * MOST_DIGITS + 4];
  u64 low = (u64)bson_long(bytes), high = (u64)bson_long(bytes + 8);
  int negative = high >> 63 != 0, exponent = (int)(high >> 49 & 0x3FFF) - EXPONENT_BIAS, count = 0, is_zero = 1;
  u32 parts[4] = {(u32)(high >> 32) & 0x1FFFF, (u32)high, (u32)(low >> 32), (u32)low};
  size_t at = sizeof text;
  // Other numbers, and what is none, have both of these bits.
  if ((high >> 61 & 3) == 3 || exponent > 0 || exponent < LEAST_EXPONENT) return 0;
  text[--at] = '"';
  while (count <= -exponent || parts[0] || parts[1] || parts[2] || parts[3]) {
    u32 digit = by_ten(parts);
    if (count == -exponent && count) text[--at] = '.';
    text[--at] = (u8)('0' + digit);
    if (digit) is_zero = 0;
    // A zero in front of the point may be one more.
    if (++count > MOST_DIGITS && digit) return 0;
  }
  if (negative && is_zero) return 0;
  if (negative) text[--at] = '-';
  text[--at] = '"';
  buffer_add(shower->out, text + at, sizeof text - at);
  return 1;
}

static int show_plain(Shower *shower, const Element *element, u32 place, int depth) {
  const u8 *value = element->value.bytes;
  switch (element->type) {
    case BSON_TEXT: return show_text(shower, element);
    case BSON_FLAG: return show_flag(shower, *value);
    case BSON_INT: scan_integer(shower->out, bson_int(value)); return 1;
    case BSON_LONG: return show_long(shower, bson_long(value));
    case BSON_DOUBLE: return show_double(shower, value);
    case BSON_DOCUMENT: return show_object(shower, element->value, place, depth + 1);
    case BSON_ARRAY: return show_list(shower, element->value, place, depth + 1);
    default: return 0;
  }
}

int show_value(Shower *shower, const Element *element, u32 place, int depth) {
  const Spot *spot = spot_of(shower, place);
  const u8 type = element->type;
  if (depth > SCAN_DEPTH) return 0;
  if (type == BSON_NULL) {
    buffer_add(shower->out, "null", 4);
    return 1;
  }
  switch (spot->kind) {
    case PLACE_INSTANT: return type == BSON_DATE && scan_instant(shower->out, bson_long(element->value.bytes));
    case PLACE_LONG: return type == BSON_LONG && show_wide(shower, bson_long(element->value.bytes));
    case PLACE_LIST: return type == BSON_ARRAY && show_list(shower, element->value, spot->item, depth + 1);
    case PLACE_OBJECT:
    case PLACE_MAP: return type == BSON_DOCUMENT && show_object(shower, element->value, place, depth + 1);
    case PLACE_FREE: return type == BSON_DATE ? show_free_date(shower, bson_long(element->value.bytes)) : show_plain(shower, element, place, depth);
    case PLACE_OBJECT_ID:
    case PLACE_UUID: return show_id(shower, spot->kind, element);
    case PLACE_DECIMAL: return type == BSON_DECIMAL && show_decimal(shower, element->value.bytes);
    case PLACE_BYTES: return show_bytes(shower, element);
    default: return show_plain(shower, element, place, depth);
  }
}
