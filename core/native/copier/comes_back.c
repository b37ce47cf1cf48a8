// Values that no row has: whether a client gives them back as they are stored.
#include "copier/judging.h"
#include "copier/text.h"

#define MOST_NAMES 1000
#define OLD_BINARY 2 // which repeats its length

// The names of the objects around a value, of which none occurs twice in one object.
typedef struct {
  Text names[MOST_NAMES];
  u32 used, depth;
} Around;

static int value_comes_back(Around *around, const Element *element);

static int is_utf8(const u8 *bytes, size_t size) {
  int plain;
  return text_points((Text){bytes, (u32)size}, &plain) >= 0;
}

static int is_new(Around *around, u32 first, Text name) {
  if (around->used == MOST_NAMES || !is_utf8(name.bytes, name.size)) return 0;
  for (u32 at = first; at < around->used; at++)
    if (text_equal(around->names[at], name)) return 0;
  around->names[around->used++] = name;
  return 1;
}

static int members_come_back(Around *around, const Element *element) {
  Walk walk = walk_of(element->bytes, element->size);
  u32 first = around->used;
  while (walk.at < walk.stop) {
    Text name;
    Element member;
    if (!walk_next(&walk, &name, &member) || !is_new(around, first, name)) return 0;
    if (!value_comes_back(around, &member)) return 0;
  }
  around->used = first;
  return 1;
}

static int entries_come_back(Around *around, const Element *element) {
  Walk walk = walk_of(element->bytes, element->size);
  for (u32 count = 0; walk.at < walk.stop; count++) {
    Text name;
    Element entry;
    if (!walk_next(&walk, &name, &entry) || !is_entry_name(name, count)) return 0;
    if (!value_comes_back(around, &entry)) return 0;
  }
  return 1;
}

// Its options are written in this order.
static int pattern_comes_back(const Element *element) {
  const u8 *options = (const u8 *)memchr(element->bytes, 0, element->size) + 1;
  if (!is_utf8(element->bytes, (size_t)(options - 1 - element->bytes))) return 0;
  for (const char *known = "ilmsux"; *known; known++) options += *options == *known;
  return !*options;
}

static int binary_comes_back(const Element *element) {
  if (element->bytes[4] != OLD_BINARY) return 1;
  return element->size >= 9 && read_u32(element->bytes + 5) == element->size - 9;
}

static int nested_comes_back(Around *around, const Element *element) {
  if (around->depth == MOST_DEPTH) return 0;
  around->depth++;
  int found = element->type == BSON_ARRAY ? entries_come_back(around, element) : members_come_back(around, element);
  around->depth--;
  return found;
}

// A length, the code, and the values of its variables.
static int scoped_comes_back(Around *around, const Element *element) {
  i64 code = text_size(element->bytes + 4, (i64)element->size - 4);
  if (code < 0 || !is_utf8(element->bytes + 8, (size_t)code - 5)) return 0;
  u32 size = element->size - 4 - (u32)code;
  Element scope = {element->bytes + 4 + code, size, BSON_OBJECT};
  return document_size(scope.bytes, size) == size && nested_comes_back(around, &scope);
}

static int value_comes_back(Around *around, const Element *element) {
  switch (element->type) {
    case BSON_TEXT:
    case BSON_CODE: return is_utf8(element->bytes + 4, element->size - 5);
    case BSON_FLAG: return *element->bytes <= 1;
    case BSON_OBJECT:
    case BSON_ARRAY: return nested_comes_back(around, element);
    case BSON_SCOPED_CODE: return scoped_comes_back(around, element);
    case BSON_PATTERN: return pattern_comes_back(element);
    case BSON_BINARY: return binary_comes_back(element);
    default: return 1; // of a fixed size, so that any bytes are a value
  }
}

int comes_back(const Element *element) {
  Around around;
  around.used = around.depth = 0;
  return value_comes_back(&around, element);
}
