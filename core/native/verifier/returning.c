// Values that no comparison shows: whether the client gives them back as they are stored. If it does not, no copy
// reads their document.
#include "verifier/showing.h"
#include "verifier/values.h"

#define OLD_BINARY 2 // which repeats its length

static int is_utf8(Span text) {
  for (size_t at = 0; at < text.size;) {
    size_t size = text.bytes[at] < 0x80 ? 1 : scan_character(text.bytes + at, text.size - at);
    if (!size) return 0;
    at += size;
  }
  return 1;
}

static int text_returns(Element element) {
  Span text;
  element.type = BSON_TEXT;
  return bson_text(&element, &text) && is_utf8(text);
}

static int collect_any(Shower *shower, Elements *elements) {
  Element element;
  int found;
  while ((found = bson_next(elements, &element)) > 0) {
    if (shower->used == SCAN_NAMES || !is_utf8(element.name)) return 0;
    shower->elements[shower->used++] = element;
  }
  return !found;
}

static int object_returns(Shower *shower, Span document, int depth) {
  Elements elements;
  size_t first = shower->used;
  if (!bson_elements(&elements, document) || !collect_any(shower, &elements)) return 0;
  size_t last = shower->used;
  if (!show_sort(shower->elements + first, last - first)) return 0;
  for (size_t at = first; at < last; at++)
    if (!show_returns(shower, shower->elements + at, depth)) return 0;
  shower->used = first;
  return 1;
}

static int list_returns(Shower *shower, Span list, int depth) {
  Elements elements;
  Element item;
  int found;
  if (!bson_elements(&elements, list)) return 0;
  for (u32 number = 0; (found = bson_next(&elements, &item)); number++)
    if (found < 0 || !show_is_number(item.name, number) || !show_returns(shower, &item, depth)) return 0;
  return 1;
}

// Its options are written in this order.
static int pattern_returns(Span value) {
  size_t size = strlen((const char *)value.bytes);
  const u8 *options = value.bytes + size + 1;
  for (const char *known = "ilmsux"; *known; known++) options += *options == *known;
  return !*options && is_utf8((Span){value.bytes, size});
}

static int binary_returns(Span value) {
  if (value.bytes[4] != OLD_BINARY) return 1;
  return value.size >= 9 && (size_t)bson_int(value.bytes + 5) == value.size - 9;
}

// A length, the code, and the values of its variables.
static int scoped_returns(Shower *shower, Span value, int depth) {
  if (value.size < 9 || (size_t)bson_int(value.bytes) != value.size) return 0;
  i64 size = (i64)bson_int(value.bytes + 4) + 4;
  if (size < 5 || size > (i64)value.size - 4) return 0;
  Element code = {.value = {value.bytes + 4, (size_t)size}, .type = BSON_CODE};
  return text_returns(code) && object_returns(shower, (Span){value.bytes + 4 + size, value.size - 4 - (size_t)size}, depth);
}

int show_returns(Shower *shower, const Element *element, int depth) {
  if (depth > SCAN_DEPTH) return 0;
  switch (element->type) {
    case BSON_TEXT:
    case BSON_CODE: return text_returns(*element);
    case BSON_FLAG: return *element->value.bytes <= 1;
    case BSON_DOCUMENT: return object_returns(shower, element->value, depth + 1);
    case BSON_ARRAY: return list_returns(shower, element->value, depth + 1);
    case BSON_SCOPED_CODE: return scoped_returns(shower, element->value, depth + 1);
    case BSON_BINARY: return binary_returns(element->value);
    case BSON_PATTERN: return pattern_returns(element->value);
    case BSON_UNDEFINED:
    case BSON_POINTER:
    case BSON_SYMBOL: return 0;
    default: return 1;
  }
}
