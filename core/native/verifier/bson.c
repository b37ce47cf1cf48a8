#include "verifier/bson.h"

#define LENGTH ((ptrdiff_t)sizeof(i32))
#define SMALLEST 5 // a document without elements

int bson_elements(Elements *elements, Span document) {
  if (document.size < SMALLEST || document.size > INT32_MAX) return 0;
  if (bson_int(document.bytes) != (i32)document.size || document.bytes[document.size - 1]) return 0;
  elements->at = document.bytes + LENGTH;
  elements->end = document.bytes + document.size - 1;
  return 1;
}

static ptrdiff_t terminated(const u8 *at, ptrdiff_t left) {
  const u8 *zero = left > 0 ? memchr(at, 0, (size_t)left) : NULL;
  return zero ? zero - at + 1 : -1;
}

// A length, and as many bytes as it says and `more`.
static ptrdiff_t measured(const u8 *at, ptrdiff_t left, ptrdiff_t more) {
  if (left < LENGTH) return -1;
  i32 length = bson_int(at);
  return length < 0 ? -1 : (ptrdiff_t)length + more;
}

static ptrdiff_t pattern(const u8 *at, ptrdiff_t left) {
  ptrdiff_t first = terminated(at, left);
  ptrdiff_t second = first < 0 ? -1 : terminated(at + first, left - first);
  return second < 0 ? -1 : first + second;
}

// The bytes of a value, -1 for a type that nobody knows.
static ptrdiff_t size_of(u8 type, const u8 *at, ptrdiff_t left) {
  switch (type) {
    case BSON_UNDEFINED: case BSON_NULL: case 0x7F: case 0xFF: return 0;
    case BSON_FLAG: return 1;
    case BSON_INT: return 4;
    case BSON_DOUBLE: case BSON_DATE: case 0x11: case BSON_LONG: return 8;
    case BSON_OBJECT_ID: return 12;
    case BSON_DECIMAL: return 16;
    case BSON_TEXT: case BSON_CODE: case BSON_SYMBOL: return measured(at, left, LENGTH);
    case BSON_DOCUMENT: case BSON_ARRAY: case BSON_SCOPED_CODE: return measured(at, left, 0);
    case BSON_BINARY: return measured(at, left, LENGTH + 1);
    case BSON_POINTER: return measured(at, left, LENGTH + 12);
    case BSON_PATTERN: return pattern(at, left);
    default: return -1;
  }
}

int bson_next(Elements *elements, Element *element) {
  if (elements->at == elements->end) return 0;
  element->type = *elements->at++;
  ptrdiff_t name = terminated(elements->at, elements->end - elements->at);
  if (name < 0) return -1;
  element->name = (Span){elements->at, (size_t)name - 1};
  elements->at += name;
  ptrdiff_t left = elements->end - elements->at, size = size_of(element->type, elements->at, left);
  if (size < 0 || size > left) return -1;
  element->value = (Span){elements->at, (size_t)size};
  elements->at += size;
  return 1;
}

int bson_text(const Element *element, Span *text) {
  if (element->type != BSON_TEXT || element->value.size < (size_t)LENGTH + 1) return 0;
  if (element->value.bytes[element->value.size - 1]) return 0;
  *text = (Span){element->value.bytes + LENGTH, element->value.size - LENGTH - 1};
  return 1;
}
