// JSON as the server writes jsonb, in the canonical form: names in order, no blanks, numbers as they are spelled.
#ifndef TWINSTORE_VERIFIER_JSON_H
#define TWINSTORE_VERIFIER_JSON_H

#include "verifier/verifier.h"

typedef struct {
  Span name;
  size_t from, to; // where it stands in what is written
} JsonMember;

typedef struct {
  Buffer *out;
  JsonMember *members; // SCAN_NAMES of them, for the objects around a value
  size_t used;
} Json;

// Each answers 0 for what the comparison shows under a mark, and for what it might.
int json_show(Json *json, Span text);
int json_show_number(Buffer *out, Span text);
int json_integer(Span text, i64 *value);

#endif
