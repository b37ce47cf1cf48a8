// Judges values against the nodes of a program, and writes them as canonical JSON or as a packed row.
//
// The values are BSON, wherever they come from: who has JSON transcodes it first, so that there is one judge.
#ifndef TWINSTORE_COPIER_CHECKER_H
#define TWINSTORE_COPIER_CHECKER_H

#include "copier/program.h"

// Types of BSON that a client gives back as they are. Values of a row have the first ten.
enum {
  BSON_DOUBLE = 0x01,
  BSON_TEXT = 0x02,
  BSON_OBJECT = 0x03,
  BSON_ARRAY = 0x04,
  BSON_ID = 0x07,
  BSON_FLAG = 0x08,
  BSON_INSTANT = 0x09,
  BSON_NULL = 0x0A,
  BSON_INT = 0x10,
  BSON_LONG = 0x12,
  BSON_BINARY = 0x05,
  BSON_PATTERN = 0x0B,
  BSON_CODE = 0x0D,
  BSON_SCOPED_CODE = 0x0F,
  BSON_STAMP = 0x11,
  BSON_DECIMAL = 0x13,
  BSON_GREATEST = 0x7F,
  BSON_LEAST = 0xFF,
};

// A value as BSON has it; `type` 0: there is none, and a null is what others write for that. `bytes` begins behind the name, with the length of a text or
// object. `size` is what bson_size answered, so the value lies within its bounds.
typedef struct {
  const u8 *bytes;
  u32 size;
  u8 type;
} Element;

// A value as the rules see it.
typedef struct Value {
  u8 present;
  i64 number;                 // integer, flag, instant, position of a member, number of entries of a list
  Text text;                  // text, constant, member; the first entry of a list where that is one of these
  double real;                // of a number
  const struct Value *fields; // of an object: one for each field of its node
  size_t json_at;             // of an object: where its JSON lies in what is written; of a list that of its first entry
  u32 json_size;
} Value;

// What one document needs; on the stack of whoever reads.
#define MOST_VALUES 1024
typedef struct {
  const Program *program;
  u32 used, depth;
  u32 maps; // around the value that is judged
  u8 rewritten; // a copy of what was judged adds a default or leaves out a null
  Value values[MOST_VALUES];
  Element elements[MOST_VALUES];
} Checker;

static inline void checker_init(Checker *checker, const Program *program) {
  checker->program = program;
  checker->used = checker->depth = checker->maps = checker->rewritten = 0;
}

// The size of a value of one of these types; -1 where it does not fit before `end`, or is of another type.
i64 bson_size(u8 type, const u8 *bytes, const u8 *end);

// Judges one value by a node and adds its canonical JSON to `out`; where that is NULL, which is for scalars, it only
// judges. Answers 0 where it is declined; what was added by then is for the caller to take back. Fills `value` for
// rules.
int check_value(Checker *checker, u32 node, const Element *element, Value *value, Buffer *out);

// Judges a row, of which there is one element for each slot, by all nodes and rules, and adds the packed row. Answers
// 1, or 0 where it is declined and nothing is added.
int check_row(Checker *checker, const Element *elements, Buffer *rows);

#endif
