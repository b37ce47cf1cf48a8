// The elements of a BSON document, bounds checked, whatever their types.
#ifndef TWINSTORE_VERIFIER_BSON_H
#define TWINSTORE_VERIFIER_BSON_H

#include "verifier/verifier.h"

enum {
  BSON_DOUBLE = 0x01,
  BSON_TEXT = 0x02,
  BSON_DOCUMENT = 0x03,
  BSON_ARRAY = 0x04,
  BSON_BINARY = 0x05,
  BSON_UNDEFINED = 0x06,
  BSON_OBJECT_ID = 0x07,
  BSON_FLAG = 0x08,
  BSON_DATE = 0x09,
  BSON_NULL = 0x0A,
  BSON_PATTERN = 0x0B,
  BSON_POINTER = 0x0C,
  BSON_CODE = 0x0D,
  BSON_SYMBOL = 0x0E,
  BSON_SCOPED_CODE = 0x0F,
  BSON_INT = 0x10,
  BSON_LONG = 0x12,
  BSON_DECIMAL = 0x13,
};

typedef struct {
  Span name, value;
  u8 type;
} Element;

typedef struct {
  const u8 *at, *end;
} Elements;

static inline i32 bson_int(const u8 *bytes) {
  i32 value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

static inline i64 bson_long(const u8 *bytes) {
  i64 value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

// 0 where the bytes are no document of exactly this size.
int bson_elements(Elements *elements, Span document);
// 1 for an element, 0 at the end, -1 for what is broken or of a type that nobody knows.
int bson_next(Elements *elements, Element *element);
// The text of an element of that type; 0 where it does not end as it says.
int bson_text(const Element *element, Span *text);

#endif
