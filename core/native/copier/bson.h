// Walking over the elements of BSON documents, each checked against the end.
#ifndef TWINSTORE_COPIER_BSON_H
#define TWINSTORE_COPIER_BSON_H

#include "copier/checker.h"
#include "copier/packed.h"

// What is left of a document or list.
typedef struct {
  const u8 *at, *stop;
} Walk;

// The length that stands in front of a document of at most `size` bytes; 0 where it does not fit, or its end is none.
static inline u32 document_size(const u8 *bytes, size_t size) {
  if (size < 5) return 0;
  u32 told = read_u32(bytes);
  return told < 5 || told > INT32_MAX || told > size || bytes[told - 1] ? 0 : told;
}

static inline Walk walk_of(const u8 *document, u32 size) { return (Walk){document + 4, document + size - 1}; }

static inline i64 text_size(const u8 *bytes, i64 room) {
  if (room < 5) return -1;
  i64 size = read_u32(bytes);
  return size < 1 || size > room - 4 || bytes[4 + size - 1] ? -1 : 4 + size;
}

// The bytes of a text, without what frames it.
static inline Text text_in(const Element *element) { return (Text){element->bytes + 4, element->size - 5}; }

// Reads the value behind a name; 0 where it is broken or of a type that cannot be taken.
static inline int walk_value(Walk *walk, u8 type, Element *element) {
  i64 size = bson_size(type, walk->at, walk->stop);
  if (size < 0) return 0;
  *element = (Element){walk->at, (u32)size, type};
  walk->at += size;
  return 1;
}

// Reads the name and the value of the next element of a walk that is not at its end.
static inline int walk_next(Walk *walk, Text *name, Element *element) {
  u8 type = *walk->at++;
  const u8 *end = memchr(walk->at, 0, (size_t)(walk->stop - walk->at));
  if (!end) return 0;
  *name = (Text){walk->at, (u32)(end - walk->at)};
  walk->at = end + 1;
  return walk_value(walk, type, element);
}

#endif
