#include "copier/program.h"

#include <stdlib.h>

#include "copier/input.h"
#include "copier/resolve.h"

#define VERSION 1
#define MOST_ITEMS 65536
// Bytes that the shortest of each kind takes.
#define LEAST_NODE (13 * 8)
#define LEAST_MEMBER (3 * 8)
#define LEAST_FIELD (6 * 8)
#define LEAST_RULE (2 * 8)
#define LEAST_OPERAND (2 * 8)
#define LEAST_CONDITION (2 * 8)
#define RANKED ((i64)1 << 32)

static void read_members(Input *input, Node *node) {
  node->member_count = input_count(input, LEAST_MEMBER, MOST_ITEMS);
  Member *members = input_room(input, node->member_count, sizeof(Member));
  for (u32 index = 0; members && index < node->member_count; index++) {
    members[index].text = input_text(input);
    members[index].number = input_number(input);
    members[index].rank = input_number(input);
  }
  node->members = members;
}

static void read_fields(Input *input, Node *node) {
  node->field_count = input_count(input, LEAST_FIELD, MOST_FIELDS);
  Field *fields = input_room(input, node->field_count, sizeof(Field));
  for (u32 index = 0; fields && index < node->field_count; index++) {
    Field *field = &fields[index];
    field->name = input_text(input);
    field->node = (u32)input_between(input, 0, MOST_NODES);
    field->presence = (u8)input_between(input, FIELD_OPTIONAL, FIELD_DEFAULT);
    field->left_out = (u8)input_between(input, 0, 1);
    field->default_json = input_text(input);
    field->default_number = input_number(input);
  }
  node->fields = fields;
}

static const i64 *read_numbers(Input *input, u32 *count) {
  *count = input_count(input, 8, MOST_ITEMS);
  i64 *numbers = input_room(input, *count, sizeof(i64));
  for (u32 index = 0; numbers && index < *count; index++) numbers[index] = input_number(input);
  return numbers;
}

static void read_operand(Input *input, Operand *operand) {
  operand->depth = input_count(input, 8, MOST_DEPTH);
  u32 *path = input_room(input, operand->depth, sizeof(u32));
  for (u32 index = 0; path && index < operand->depth; index++) path[index] = (u32)input_between(input, 0, MOST_FIELDS);
  operand->path = path;
  operand->numbers = read_numbers(input, &operand->count);
}

static void read_rules(Input *input, Node *node) {
  node->rule_count = input_count(input, LEAST_RULE, MOST_ITEMS);
  Rule *rules = input_room(input, node->rule_count, sizeof(Rule));
  for (u32 index = 0; rules && index < node->rule_count; index++) {
    rules[index].op = (RuleOp)input_between(input, RULE_FIELD_AT_MOST, RULE_FIRST_OF);
    rules[index].count = input_count(input, LEAST_OPERAND, MOST_ITEMS);
    Operand *operands = input_room(input, rules[index].count, sizeof(Operand));
    for (u32 each = 0; operands && each < rules[index].count; each++) read_operand(input, &operands[each]);
    rules[index].operands = operands;
  }
  node->rules = rules;
}

static void read_list(Input *input, Node *node) {
  node->item = (i32)input_between(input, -1, MOST_NODES);
  node->list_rule = (u8)input_between(input, LIST_NONE, LIST_DISTINCT);
  i64 flags = input_between(input, 0, 3);
  node->descending = flags & 1;
  node->unique = flags >> 1;
  node->most = input_between(input, -1, INT64_MAX);
  node->key_count = input_count(input, 8, MOST_FIELDS);
  SortKey *keys = input_room(input, node->key_count, sizeof(SortKey));
  for (u32 index = 0; keys && index < node->key_count; index++) {
    i64 key = input_between(input, 0, RANKED + MOST_FIELDS);
    keys[index].ranked = key >= RANKED;
    keys[index].field = (u32)key;
  }
  node->keys = keys;
  node->distinct = (i32)input_between(input, -1, MOST_FIELDS);
}

static void read_node(Input *input, Node *node) {
  node->kind = (NodeKind)input_between(input, NODE_TEXT, NODE_BYTES);
  node->flags = (u32)input_between(input, 0, UINT32_MAX);
  node->low = input_number(input);
  node->high = input_number(input);
  read_members(input, node);
  read_fields(input, node);
  read_rules(input, node);
  read_list(input, node);
}

static void read_nodes(Input *input, Program *program) {
  program->node_count = input_count(input, LEAST_NODE, MOST_NODES);
  Node *nodes = input_room(input, program->node_count, sizeof(Node));
  for (u32 index = 0; nodes && index < program->node_count; index++) read_node(input, &nodes[index]);
  program->nodes = nodes;
  program->root = (u32)input_between(input, 0, (i64)program->node_count - 1);
  if (!input->failed) resolve_nodes(input, nodes, program->node_count);
  if (!input->failed && nodes[program->root].kind != NODE_OBJECT) input->failed = 1;
}

static void read_marker(Input *input, Slot *slot) {
  slot->name = input_text(input);
  slot->node = (u32)input_between(input, 0, MOST_NODES);
  slot->presence = input_between(input, 0, 1) ? FIELD_REQUIRED : FIELD_OPTIONAL;
}

static void read_slots(Input *input, Program *program) {
  u32 markers = input_count(input, LEAST_MEMBER, MOST_FIELDS);
  if (input->failed) return;
  const Node *root = root_of(program);
  program->field_count = root->field_count;
  program->slot_count = root->field_count + markers;
  Slot *slots = input_room(input, program->slot_count, sizeof(Slot));
  if (!slots) return;
  for (u32 index = 0; index < root->field_count; index++) {
    const Field *field = &root->fields[index];
    slots[index] = (Slot){field->name, field->node, field->presence, field->left_out, field};
  }
  for (u32 index = root->field_count; index < program->slot_count; index++) read_marker(input, &slots[index]);
  program->slots = slots;
}

static void read_conditions(Input *input, Program *program) {
  program->condition_count = input_count(input, LEAST_CONDITION, MOST_FIELDS);
  Condition *conditions = input_room(input, program->condition_count, sizeof(Condition));
  for (u32 index = 0; conditions && index < program->condition_count; index++) {
    conditions[index].slot = (u32)input_between(input, 0, (i64)program->slot_count - 1);
    conditions[index].numbers = read_numbers(input, &conditions[index].count);
  }
  program->conditions = conditions;
}

static void read_roles(Input *input, Program *program) {
  i64 last = (i64)program->slot_count - 1;
  program->key_count = input_count(input, 8, MOST_FIELDS);
  u32 *key = input_room(input, program->key_count, sizeof(u32));
  for (u32 index = 0; key && index < program->key_count; index++) key[index] = (u32)input_between(input, 0, last);
  program->key = key;
  program->tenant = (i32)input_between(input, -1, last);
  program->tenant_may_lack = (u8)input_between(input, 0, 1);
  program->expires = (i32)input_between(input, -1, last);
  read_conditions(input, program);
  if (!input->failed) resolve_roles(input, program);
}

Program *ts_program_new(const u8 *bytes, size_t size) {
  Input input = {bytes, bytes + size, NULL, 0};
  Program *program = input_room(&input, 1, sizeof(Program));
  if (input_number(&input) != VERSION) input.failed = 1;
  if (!input.failed) read_nodes(&input, program);
  if (!input.failed) read_slots(&input, program);
  if (!input.failed) read_roles(&input, program);
  if (input.failed || input.at != input.end) {
    blocks_free(input.blocks);
    return NULL;
  }
  program->memory = input.blocks;
  return program;
}

void ts_program_free(Program *program) {
  if (program) blocks_free(program->memory);
}
