// Reads what Python writes for native code: numbers of 64 bits, texts and lists.
#ifndef TWINSTORE_VERIFIER_INPUT_H
#define TWINSTORE_VERIFIER_INPUT_H

#include <stdlib.h>

#include "verifier/verifier.h"

typedef struct {
  const u8 *at, *end;
  int broken; // something was not there; all that is read from then on is nothing
} Given;

static inline i64 given_number(Given *given) {
  i64 value = 0;
  if (given->broken || given->end - given->at < (ptrdiff_t)sizeof value) {
    given->broken = 1;
    return 0;
  }
  memcpy(&value, given->at, sizeof value);
  given->at += sizeof value;
  return value;
}

// A number from 0 to below a limit, such as the length of a list.
static inline u32 given_below(Given *given, i64 limit) {
  i64 value = given_number(given);
  if (value < 0 || value >= limit) given->broken = 1;
  return given->broken ? 0 : (u32)value;
}

// The number of items of a list, each of which takes 8 bytes or more.
static inline u32 given_count(Given *given) {
  return given_below(given, given->broken ? 1 : (given->end - given->at) / (i64)sizeof(i64) + 1);
}

// Room for the items of a list, of which there are no more than the bytes it stands in could hold.
static inline void *given_room(size_t count, size_t size) { return calloc(count + 1, size); }

static inline Span given_text(Given *given) {
  Span text = {given->at, 0};
  i64 size = given_number(given);
  if (given->broken || size < 0 || size > given->end - given->at) {
    given->broken = 1;
    return text;
  }
  text.bytes = given->at;
  text.size = (size_t)size;
  given->at += size;
  return text;
}

#endif
