// What the columns of a COPY hold, and where that stands in the content.
#ifndef TWINSTORE_VERIFIER_TABLE_FORM_H
#define TWINSTORE_VERIFIER_TABLE_FORM_H

#include "verifier/removals.h"

#define MOST_COLUMNS 256

// How the text of a column becomes a value.
enum {
  COLUMN_TEXT,
  COLUMN_INT,
  COLUMN_FLAG,
  COLUMN_NUMBER,
  COLUMN_INSTANT,
  COLUMN_JSON,
  COLUMN_ARRAY,
  COLUMN_MEMBER,
  COLUMN_DECIMAL,
  COLUMN_BYTES,
};

// A number of an enumeration, and its text.
typedef struct {
  i64 number;
  Span text;
} Numbered;

typedef struct {
  u8 kind;
  u32 first, count; // of the numbers
} Column;

typedef struct {
  Span name;
  Span left_out; // the JSON with which the content leaves it out; such a column is never null
  u32 column;
} Part;

struct TableForm {
  u8 *memory;
  Column *columns;
  Numbered *numbered;
  Part *fields, *markers; // sorted by name
  Removals removals;
  u32 column_count, field_count, marker_count;
  u32 parts, key[SCAN_PARTS];
  u8 is_number[SCAN_PARTS];
  u8 tenant_may_lack;
  i32 tenant, expires, version; // -1 where there is none
};

#endif
