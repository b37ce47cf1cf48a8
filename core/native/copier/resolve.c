#include "copier/resolve.h"

#include "copier/text.h"

#define BIT(kind) (1u << (kind))
#define TEXTS (BIT(NODE_TEXT) | BIT(NODE_CONST) | BIT(NODE_ENUM))
#define NUMBERS (BIT(NODE_INT) | BIT(NODE_FLAG) | BIT(NODE_INSTANT))
#define KEYS (TEXTS | BIT(NODE_INT) | BIT(NODE_OBJECT_ID) | BIT(NODE_UUID))
#define ANY (~0u)

// What a rule needs of its operands: the first, the second and all that follow.
typedef struct {
  u32 least, most, first, second, rest;
} Need;

static const Need needs[] = {
  [RULE_FIELD_AT_MOST] = {2, 2, BIT(NODE_INT), BIT(NODE_INT), 0},
  [RULE_SUM_AT_MOST] = {1, MOST_FIELDS, BIT(NODE_INT), BIT(NODE_INT), BIT(NODE_INT)},
  [RULE_LENGTH_AT_MOST] = {2, 2, BIT(NODE_LIST), BIT(NODE_INT), 0},
  [RULE_NOT_BEFORE] = {1, MOST_FIELDS, BIT(NODE_INSTANT), BIT(NODE_INSTANT), BIT(NODE_INSTANT)},
  [RULE_PRESENT_EXACTLY_IN] = {2, 2, ANY, BIT(NODE_ENUM), 0},
  [RULE_PRESENT_IN] = {2, 2, ANY, BIT(NODE_ENUM), 0},
  [RULE_ABSENT_IN] = {2, 2, ANY, BIT(NODE_ENUM), 0},
  [RULE_PRESENT_EXACTLY_WHEN] = {2, 2, ANY, BIT(NODE_FLAG), 0},
  [RULE_ALL_OR_NONE] = {1, MOST_FIELDS, ANY, ANY, ANY},
  [RULE_REQUIRES_ENTRY] = {2, 2 * MOST_FIELDS, BIT(NODE_ENUM), BIT(NODE_LIST), 0},
  [RULE_EQUAL_OR_ABSENT] = {2, 2, TEXTS | NUMBERS, TEXTS | NUMBERS, 0},
  [RULE_EQUAL_EXACTLY_IN] = {2, 2, BIT(NODE_ENUM), BIT(NODE_ENUM), 0},
  [RULE_FIRST_OF] = {2, 2, TEXTS | BIT(NODE_OBJECT), BIT(NODE_LIST), 0},
};

typedef struct {
  Input *input;
  Node *nodes;
  u32 count;
} Nodes;

static void require(const Nodes *all, int kept) {
  if (!kept) all->input->failed = 1;
}

// The text of a JSON text without escapes; 0 where it is another value.
static int unquoted(Text json, Text *text) {
  if (json.size < 2 || json.bytes[0] != '"' || json.bytes[json.size - 1] != '"') return 0;
  if (memchr(json.bytes, '\\', json.size)) return 0;
  *text = (Text){json.bytes + 1, json.size - 2};
  return 1;
}

static int is_number(Text json, i64 number) {
  // The defaults of doubles are whole where they are emitted without a document.
  u8 digits[24];
  u32 size = 0;
  u64 rest = number < 0 ? 0 - (u64)number : (u64)number;
  do digits[sizeof digits - ++size] = (u8)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) digits[sizeof digits - ++size] = '-';
  return json.size == size && !memcmp(json.bytes, digits + sizeof digits - size, size);
}

static int is_known_default(const Node *node, Field *field) {
  switch (node->kind) {
    case NODE_TEXT:
    case NODE_CONST: return unquoted(field->default_json, &field->default_text);
    case NODE_ENUM:
      return unquoted(field->default_json, &field->default_text) && field->default_number >= 0 &&
             field->default_number < node->member_count;
    case NODE_INSTANT:
    case NODE_OBJECT_ID:
    case NODE_UUID:
    case NODE_DECIMAL:
    case NODE_BYTES: return 0;
    case NODE_NUMBER: return is_number(field->default_json, field->default_number);
    default: return field->default_json.size > 0;
  }
}

static void resolve_field(const Nodes *all, Field *field) {
  int plain;
  require(all, field->node < all->count);
  // Names are written into JSON as they are.
  require(all, text_points(field->name, &plain) >= 0 && plain);
  if (all->input->failed) return;
  // A document without it is declined, where what the model fills in is not known here.
  int is_known = is_known_default(&all->nodes[field->node], field);
  if (field->presence == FIELD_DEFAULT && !is_known) field->presence = FIELD_REQUIRED;
}

// The node at the end of a path; NULL where the path leads nowhere.
static const Node *target(const Nodes *all, const Node *node, const Operand *operand) {
  if (!operand->depth) return NULL;
  for (u32 step = 0; step < operand->depth; step++) {
    if (node->kind != NODE_OBJECT || operand->path[step] >= node->field_count) return NULL;
    Field *field = (Field *)&node->fields[operand->path[step]];
    // Rules see nothing inside of a default.
    if (step + 1 < operand->depth && field->presence == FIELD_DEFAULT) field->presence = FIELD_REQUIRED;
    if (field->node >= all->count) return NULL;
    node = &all->nodes[field->node];
  }
  return node;
}

static u32 needed(const Rule *rule, u32 index) {
  const Need *need = &needs[rule->op];
  if (rule->op == RULE_REQUIRES_ENTRY) return index % 2 ? need->second : need->first;
  return index == 0 ? need->first : index == 1 ? need->second : need->rest;
}

static void resolve_rule(const Nodes *all, const Node *node, const Rule *rule) {
  require(all, rule->count >= needs[rule->op].least && rule->count <= needs[rule->op].most);
  require(all, rule->op != RULE_REQUIRES_ENTRY || rule->count % 2 == 0);
  for (u32 index = 0; !all->input->failed && index < rule->count; index++) {
    const Node *found = target(all, node, &rule->operands[index]);
    require(all, found && (BIT(found->kind) & needed(rule, index)));
  }
  if (all->input->failed || (rule->op != RULE_EQUAL_OR_ABSENT && rule->op != RULE_FIRST_OF)) return;
  const Node *left = target(all, node, &rule->operands[0]), *right = target(all, node, &rule->operands[1]);
  if (rule->op == RULE_FIRST_OF) require(all, right->item >= 0 && right->item < (i32)all->count);
  if (all->input->failed) return;
  if (rule->op == RULE_FIRST_OF) right = &all->nodes[right->item];
  if (left->kind == NODE_OBJECT) require(all, left == right);
  require(all, (BIT(left->kind) & TEXTS) ? (BIT(right->kind) & TEXTS) != 0 : left->kind == right->kind);
}

static int is_scalar(const Nodes *all, u32 node) { return (BIT(all->nodes[node].kind) & (TEXTS | NUMBERS)) != 0; }

static void resolve_keys(const Nodes *all, const Node *node) {
  const Node *item = &all->nodes[node->item];
  require(all, item->kind == NODE_OBJECT);
  if (!all->input->failed && node->distinct >= 0) {
    require(all, node->distinct < (i32)item->field_count);
    require(all, all->input->failed || is_scalar(all, item->fields[node->distinct].node));
  }
  for (u32 index = 0; !all->input->failed && index < node->key_count; index++) {
    require(all, node->keys[index].field < item->field_count);
    if (all->input->failed) return;
    const Field *field = &item->fields[node->keys[index].field];
    u32 kind = BIT(all->nodes[field->node].kind);
    require(all, kind & (node->keys[index].ranked ? BIT(NODE_ENUM) : TEXTS | NUMBERS));
  }
}

static void resolve_list(const Nodes *all, const Node *node) {
  require(all, node->item >= 0 && node->item < (i32)all->count);
  if (all->input->failed) return;
  u32 item = BIT(all->nodes[node->item].kind);
  if (node->kind == NODE_MAP) {
    require(all, node->low >= 0 && node->low < (i64)all->count && all->nodes[node->low].kind == NODE_TEXT);
    return;
  }
  if (node->list_rule == LIST_SET) require(all, item & TEXTS);
  if (node->list_rule == LIST_RISING || node->list_rule == LIST_DISTINCT) require(all, item & (TEXTS | NUMBERS));
  if (node->list_rule == LIST_ORDERED) require(all, node->key_count > 0);
  require(all, node->distinct < 0 || node->list_rule == LIST_ORDERED);
  if (node->list_rule == LIST_ORDERED) resolve_keys(all, node);
}

static void resolve_text(const Nodes *all, const Node *node) {
  require(all, node->flags <= TEXT_FLAGS);
  require(all, !(node->flags & TEXT_TEMPLATE) || node->member_count == 1);
  for (u32 index = 1; (node->flags & TEXT_LISTED) && index < node->member_count; index++)
    require(all, text_compare(node->members[index - 1].text, node->members[index].text) < 0);
}

static void resolve_node(const Nodes *all, const Node *node) {
  for (u32 index = 0; index < node->field_count; index++) resolve_field(all, (Field *)&node->fields[index]);
  if (node->kind == NODE_TEXT) resolve_text(all, node);
  if (node->kind == NODE_CONST) require(all, node->member_count == 1);
  // The position is one byte of a packed row.
  if (node->kind == NODE_ENUM) require(all, node->member_count >= 1 && node->member_count <= 256);
}

// Whether a server that keeps objects of JSON has one name before another one: shorter ones first.
static int stands_before(Text left, Text right) {
  return left.size == right.size ? memcmp(left.bytes, right.bytes, left.size) < 0 : left.size < right.size;
}

// A server that finds names in its own order has nothing to sort.
static void order_fields(Input *input, Node *node) {
  u32 *written = input_room(input, node->field_count, sizeof(u32));
  for (u32 index = 0; written && index < node->field_count; index++) {
    u32 at = index;
    for (; at && stands_before(node->fields[index].name, node->fields[written[at - 1]].name); at--)
      written[at] = written[at - 1];
    written[at] = index;
  }
  node->written = written;
}

void resolve_nodes(Input *input, Node *nodes, u32 count) {
  const Nodes all = {input, nodes, count};
  for (u32 index = 0; index < count; index++) resolve_node(&all, &nodes[index]);
  for (u32 index = 0; index < count; index++) order_fields(input, &nodes[index]);
  for (u32 index = 0; !input->failed && index < count; index++) {
    const Node *node = &nodes[index];
    if (node->kind == NODE_LIST || node->kind == NODE_MAP) resolve_list(&all, node);
    for (u32 each = 0; !input->failed && each < node->rule_count; each++) resolve_rule(&all, node, &node->rules[each]);
  }
}

static void resolve_condition(const Nodes *all, const Program *program, const Condition *condition) {
  const Node *node = node_of(program, condition->slot);
  for (u32 index = 0; index < condition->count; index++)
    require(all, node->kind == NODE_ENUM && condition->numbers[index] >= 0 && condition->numbers[index] < 256);
}

void resolve_roles(Input *input, const Program *program) {
  const Nodes all = {input, NULL, program->node_count};
  require(&all, program->slot_count <= MOST_FIELDS && program->key_count > 0);
  for (u32 slot = 0; !input->failed && slot < program->slot_count; slot++)
    require(&all, program->slots[slot].node < program->node_count);
  for (u32 index = 0; !input->failed && index < program->key_count; index++)
    require(&all, BIT(node_of(program, program->key[index])->kind) & KEYS);
  if (input->failed) return;
  if (program->tenant >= 0) require(&all, node_of(program, (u32)program->tenant)->kind == NODE_TEXT);
  if (program->expires >= 0) require(&all, node_of(program, (u32)program->expires)->kind == NODE_INSTANT);
  for (u32 index = 0; index < program->condition_count; index++)
    resolve_condition(&all, program, &program->conditions[index]);
}
