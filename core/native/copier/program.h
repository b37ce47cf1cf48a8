// A reader program in memory: what a document must look like to be taken. Made once and never changed, so
// that all threads may use it. The numbers are those of twinstore.fast.nodes.
#ifndef TWINSTORE_COPIER_PROGRAM_H
#define TWINSTORE_COPIER_PROGRAM_H

#include "copier/copier.h"

// Beyond these a program counts as malformed, and a document is declined.
#define MOST_NODES 4096
#define MOST_FIELDS 256
#define MOST_DEPTH 64

typedef enum {
  NODE_TEXT,
  NODE_INT,
  NODE_FLAG,
  NODE_INSTANT,
  NODE_ENUM,
  NODE_CONST,
  NODE_OBJECT,
  NODE_LIST,
  NODE_MAP,
  NODE_JSON,
  NODE_NUMBER,
  NODE_OBJECT_ID, // from here on a text is a value of its own in BSON, see typed.h
  NODE_UUID,
  NODE_DECIMAL,
  NODE_BYTES,
} NodeKind;

// Of texts.
enum {
  TEXT_TRIM = 1,
  TEXT_NONEMPTY = 2,
  TEXT_NO_CONTROL = 4,
  TEXT_TENANT = 8,
  TEXT_DIGEST = 16,
  TEXT_NO_NUL = 32,
  TEXT_IDENTIFIER = 64,
  TEXT_LOWER = 128,
  TEXT_TEMPLATE = 256,
  TEXT_LISTED = 512,
  TEXT_CRON = 1024,
};
#define TEXT_FLAGS 2047
// Stands in a template for a lower-case hexadecimal digit.
#define HEX_DIGIT 1
// Of free JSON.
enum { LOWER_KEYS = 1 };
// Of a map.
enum { KEPT_ORDER = 2 };
enum { FIELD_OPTIONAL, FIELD_REQUIRED, FIELD_DEFAULT };
enum { LIST_NONE, LIST_SET, LIST_ORDERED, LIST_RISING, LIST_DISTINCT };

typedef enum {
  RULE_FIELD_AT_MOST,
  RULE_SUM_AT_MOST,
  RULE_LENGTH_AT_MOST,
  RULE_NOT_BEFORE,
  RULE_PRESENT_EXACTLY_IN,
  RULE_PRESENT_IN,
  RULE_ABSENT_IN,
  RULE_PRESENT_EXACTLY_WHEN,
  RULE_ALL_OR_NONE,
  RULE_REQUIRES_ENTRY,
  RULE_EQUAL_OR_ABSENT,
  RULE_EQUAL_EXACTLY_IN,
  RULE_FIRST_OF,
} RuleOp;

typedef struct {
  const u8 *bytes;
  u32 size;
} Text;

// A text of an enumeration, of which the position is its index; or what a constant or a text is compared with.
typedef struct {
  Text text;
  i64 number, rank;
} Member;

typedef struct {
  Text name;
  u32 node;
  u8 presence, left_out;
  Text default_json; // empty where there is none
  Text default_text; // the same without quotes, where it is a text
  i64 default_number;
} Field;

typedef struct {
  const u32 *path; // numbers of fields, from the object that has the rule
  const i64 *numbers;
  u32 depth, count;
} Operand;

typedef struct {
  RuleOp op;
  const Operand *operands;
  u32 count;
} Rule;

typedef struct {
  u32 field;
  u8 ranked;
} SortKey;

typedef struct {
  NodeKind kind;
  u32 flags;
  i64 low, high;
  const Member *members;
  const Field *fields;
  const u32 *written; // numbers of the fields, in the order in which they are written
  const Rule *rules;
  const SortKey *keys;
  u32 member_count, field_count, rule_count, key_count;
  i32 item;     // of a list or map, -1 where there is none
  i32 distinct; // the field in which no two entries of an ordered list are equal, -1 where there is none
  u8 list_rule, descending, unique;
  i64 most; // entries, -1 for any number
} Node;

// What stands in a slot of each row that is due for removal: one of some members, or anything where there are none.
typedef struct {
  u32 slot, count;
  const i64 *numbers;
} Condition;

// A field of the model or a storage marker.
typedef struct {
  Text name;
  u32 node;
  u8 presence, left_out;
  const Field *field; // NULL of a marker
} Slot;

struct Program {
  const Node *nodes;
  const Slot *slots; // the fields of the root, then the markers
  const u32 *key;
  const Condition *conditions; // of the removal; all of them hold
  u32 node_count, root, field_count, slot_count, key_count, condition_count;
  i32 tenant, expires; // slots, -1 where there is none
  u8 tenant_may_lack;
  void *memory; // all of it, in one block chain
};

static inline const Node *node_of(const Program *program, u32 slot) {
  return &program->nodes[program->slots[slot].node];
}


static inline const Node *root_of(const Program *program) { return &program->nodes[program->root]; }

#endif
