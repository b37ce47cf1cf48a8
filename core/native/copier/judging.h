// What the parts of the checker share.
#ifndef TWINSTORE_COPIER_JUDGING_H
#define TWINSTORE_COPIER_JUDGING_H

#include "copier/bson.h"

// Whether a text of valid UTF-8 is what the flags of a node ask for.
int text_fits(const Node *node, Text text, i64 points, int plain);

int check_object(Checker *checker, const Node *node, const Element *element, Value *value, Buffer *out);
int check_list(Checker *checker, const Node *node, const Element *element, Value *value, Buffer *out);
int check_map(Checker *checker, const Node *node, const Element *element, Buffer *out);
int check_json(Checker *checker, const Node *node, const Element *element, Buffer *out);
// `out` is what the values were written to.
int keep_rules(const Node *node, const Value *values, const Buffer *out);

static inline int is_present(const Element *element) { return element->type && element->type != BSON_NULL; }

// What the rules see of a field that is not there; 0 where it must be there.
int absent_value(const Field *field, Value *value);

// Whether a value is the one with which its field is omitted from the wire form, or that one is not known. `json` is
// what the value was written as; of a scalar it is not looked at.
int is_left_out(const Field *field, const Node *node, const Value *value, Text json);

// The name of an entry of a list is its number, as a server writes it; other names a copy would lose.
static inline int is_entry_name(Text name, u32 number) {
  u8 digits[10];
  u32 at = sizeof digits;
  do digits[--at] = (u8)('0' + number % 10);
  while (number /= 10);
  return name.size == sizeof digits - at && !memcmp(name.bytes, digits + at, name.size);
}

// Whether a client that reads a value of any type and writes it again writes the same bytes.
int comes_back(const Element *element);

// Room for the values of some fields, NULL where there is none left.
static inline Value *checker_take(Checker *checker, u32 count) {
  if (count > MOST_VALUES - checker->used) return NULL;
  checker->used += count;
  return checker->values + checker->used - count;
}

#endif
