// Rows: the values of all slots, judged and packed.
#include "copier/judging.h"
#include "copier/typed.h"

// No longer text identifies a row, see twinstore.catalog.keys.
#define LONGEST_KEY 4096

static void add_text(Buffer *rows, u8 tag, Text text) {
  if (!buffer_need(rows, (size_t)text.size + 5)) return;
  u8 *to = rows->bytes + rows->size;
  *to = tag;
  write_u32(to + 1, text.size);
  memcpy(to + 5, text.bytes, text.size);
  rows->size += (size_t)text.size + 5;
}

static void add_eight(Buffer *rows, u8 tag, const void *number) {
  if (!buffer_need(rows, 9)) return;
  rows->bytes[rows->size] = tag;
  memcpy(rows->bytes + rows->size + 1, number, 8);
  rows->size += 9;
}

static void add_one(Buffer *rows, u8 tag, i64 number) {
  const u8 bytes[] = {tag, (u8)number};
  buffer_add(rows, bytes, 2);
}

// Adds a value that is no object, list, map or free JSON.
static void add_scalar(const Node *node, const Value *value, Buffer *rows) {
  switch (node->kind) {
    case NODE_INT: add_eight(rows, TAG_INT, &value->number); break;
    case NODE_INSTANT: add_eight(rows, TAG_INSTANT, &value->number); break;
    case NODE_NUMBER: add_eight(rows, TAG_NUMBER, &value->real); break;
    case NODE_FLAG: add_one(rows, TAG_FLAG, value->number); break;
    case NODE_ENUM: add_one(rows, TAG_ENUM, value->number); break;
    default: add_text(rows, TAG_TEXT, value->text);
  }
}

static int is_nested(const Node *node) { return node->kind >= NODE_OBJECT && node->kind <= NODE_JSON; }

static int add_nested(Checker *checker, const Slot *slot, const Element *element, Value *value, Buffer *rows) {
  add_text(rows, TAG_JSON, (Text){(const u8 *)"", 0});
  size_t begin = rows->size;
  if (!check_value(checker, slot->node, element, value, rows) || rows->failed) return 0;
  size_t size = rows->size - begin;
  if (size > INT32_MAX) return 0;
  write_u32(rows->bytes + begin - 4, (u32)size);
  if (!slot->left_out) return 1;
  const Text json = {rows->bytes + begin, (u32)size};
  return !is_left_out(slot->field, &checker->program->nodes[slot->node], value, json);
}

static int add_typed(const Node *node, const Element *element, Value *value, Buffer *rows) {
  add_text(rows, TAG_TEXT, (Text){(const u8 *)"", 0});
  size_t begin = rows->size;
  if (!typed_text(node, element, rows) || rows->failed || rows->size - begin > INT32_MAX) return 0;
  write_u32(rows->bytes + begin - 4, (u32)(rows->size - begin));
  value->present = 1;
  return 1;
}

static int add_present(Checker *checker, const Slot *slot, const Element *element, Value *value, Buffer *rows) {
  const Node *node = &checker->program->nodes[slot->node];
  if (is_nested(node)) return add_nested(checker, slot, element, value, rows);
  if (is_typed(node)) return !slot->left_out && add_typed(node, element, value, rows);
  if (!check_value(checker, slot->node, element, value, NULL)) return 0;
  add_scalar(node, value, rows);
  return !slot->left_out || !is_left_out(slot->field, node, value, value->text);
}

static int add_absent(Checker *checker, const Slot *slot, Value *value, Buffer *rows) {
  if (slot->field ? !absent_value(slot->field, value) : slot->presence == FIELD_REQUIRED) return 0;
  const Node *node = &checker->program->nodes[slot->node];
  if (!value->present || slot->left_out) {
    buffer_add_byte(rows, TAG_ABSENT);
    return 1;
  }
  checker->rewritten = 1;
  if (is_nested(node)) {
    add_text(rows, TAG_JSON, slot->field->default_json);
  } else {
    value->real = (double)value->number;
    add_scalar(node, value, rows);
  }
  return 1;
}

static int add_slots(Checker *checker, const Element *elements, Value *values, Buffer *rows) {
  const Program *program = checker->program;
  for (u32 index = 0; index < program->slot_count; index++) {
    const Slot *slot = &program->slots[index];
    values[index] = (Value){0};
    int taken = is_present(&elements[index]) ? add_present(checker, slot, &elements[index], &values[index], rows)
                                             : add_absent(checker, slot, &values[index], rows);
    if (!taken) return 0;
  }
  return 1;
}

// Whether a row can be found by its key, and its owner can be told.
static int has_roles(const Program *program, const Value *values) {
  for (u32 index = 0; index < program->key_count; index++) {
    const Value *part = &values[program->key[index]];
    if (!part->present || part->text.size > LONGEST_KEY) return 0;
  }
  return program->tenant < 0 || program->tenant_may_lack || values[program->tenant].present;
}

static int add_row(Checker *checker, const Element *elements, Buffer *rows) {
  Value *values = checker_take(checker, checker->program->slot_count);
  buffer_add_u32(rows, 0);
  return values && add_slots(checker, elements, values, rows) && has_roles(checker->program, values) &&
         keep_rules(root_of(checker->program), values, rows);
}

int check_row(Checker *checker, const Element *elements, Buffer *rows) {
  size_t begin = rows->size;
  checker->used = checker->depth = checker->maps = 0;
  int taken = add_row(checker, elements, rows) && !rows->failed && rows->size - begin <= INT32_MAX;
  if (taken) write_u32(rows->bytes + begin, (u32)(rows->size - begin));
  else rows->size = begin;
  return taken;
}
