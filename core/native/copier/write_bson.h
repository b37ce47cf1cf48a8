// Writes BSON: elements, lengths and scalars, each as the client of the store encodes it.
#ifndef TWINSTORE_COPIER_WRITE_BSON_H
#define TWINSTORE_COPIER_WRITE_BSON_H

#include "copier/program.h"

// Where a member of an object lies: its type, name and value. Those of a model have the number of their field.
typedef struct {
  u32 start, end, field;
} Place;

// Adds a type, a name and the end of the name; answers where, because the type may be known later.
size_t bson_begin(Buffer *out, u8 type, Text name);
// The same for an item of a list.
size_t bson_begin_item(Buffer *out, u32 index);
// Ends the document that began at a place with its length.
void bson_end(Buffer *out, size_t start);

// Add a value and answer its type: an integer in as many bits as it needs, or in 64.
u8 bson_add_int(Buffer *out, i64 value, int is_long);
u8 bson_add_text(Buffer *out, Text text);

// Puts members that lie one behind the other, up to the end of `out`, into the order of the fields or else of
// their names; 0 where there are too many that are not in order.
int sort_members(Buffer *out, Place *places, u32 count);

#endif
