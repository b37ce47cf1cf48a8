// Texts: strict UTF-8, what is a blank, and the canonical JSON of scalars.
#ifndef TWINSTORE_COPIER_TEXT_H
#define TWINSTORE_COPIER_TEXT_H

#include "copier/program.h"

// Instants of the years 1 to 9999, in milliseconds since 1970.
#define LEAST_INSTANT (-62135596800000LL)
#define MOST_INSTANT 253402300799999LL

// Code points of strict UTF-8 (no surrogates, no overlong forms), -1 for all else. `plain`: the text consists of
// printable ASCII, and JSON has it as it is.
i64 text_points(Text text, int *plain);

// Whether no blank stands at either end: nothing that Unicode calls white space, and no control character. Of valid UTF-8.
int text_is_trimmed(Text text);
int text_has_control(Text text);
// ASCII without upper-case letters: of other letters not all programs know the same lower-case ones.
int text_is_lower(Text text);

// Three-way comparison by bytes, which is that by code points.
int text_compare(Text left, Text right);
static inline int text_equal(Text left, Text right) {
  return left.size == right.size && !memcmp(left.bytes, right.bytes, left.size);
}

void json_text(Buffer *out, Text text, int plain);
void json_int(Buffer *out, i64 value);
// With quotes, as twinstore.models.json_text.format_timestamp writes it.
void json_instant(Buffer *out, i64 milliseconds);
// The repr of Python, and an integer where the number is whole; 0 where that is not certain, or not finite. Only tells
// where `out` is NULL.
int json_number(Buffer *out, double value);

#endif
