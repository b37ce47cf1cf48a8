// The rules of twinstore.models.rules.
#include "copier/judging.h"
#include "copier/text.h"

static const Value absent = {0};

// What a path leads to; what lies in an absent object is absent.
static const Value *seen(const Operand *operand, const Value *values) {
  const Value *value = &values[operand->path[0]];
  for (u32 step = 1; step < operand->depth; step++) {
    if (!value->present || !value->fields) return &absent;
    value = &value->fields[operand->path[step]];
  }
  return value;
}

static int is_among(const Operand *by, const Value *values) {
  const Value *value = seen(by, values);
  for (u32 index = 0; value->present && index < by->count; index++)
    if (value->number == by->numbers[index]) return 1;
  return 0;
}

static int sum_at_most(const Rule *rule, const Value *values) {
  i64 sum = 0;
  for (u32 index = 1; index < rule->count; index++)
    if (__builtin_add_overflow(sum, seen(&rule->operands[index], values)->number, &sum)) return 0;
  return sum <= seen(&rule->operands[0], values)->number;
}

static int not_before(const Rule *rule, const Value *values) {
  const Value *later = seen(&rule->operands[0], values);
  for (u32 index = 1; later->present && index < rule->count; index++) {
    const Value *earlier = seen(&rule->operands[index], values);
    if (earlier->present && later->number < earlier->number) return 0;
  }
  return 1;
}

static int all_or_none(const Rule *rule, const Value *values) {
  u32 present = 0;
  for (u32 index = 0; index < rule->count; index++) present += seen(&rule->operands[index], values)->present;
  return present == 0 || present == rule->count;
}

static int requires_entry(const Rule *rule, const Value *values) {
  for (u32 index = 0; index + 1 < rule->count; index += 2)
    if (is_among(&rule->operands[index], values) && seen(&rule->operands[index + 1], values)->number == 0) return 0;
  return 1;
}

// Both are texts or numbers of the same kind: the other part of each is empty.
static int are_equal(const Value *left, const Value *right) {
  if (left->text.bytes || right->text.bytes) return text_equal(left->text, right->text);
  return left->number == right->number;
}

static int equal_or_absent(const Value *field, const Value *other) {
  return !field->present || (other->present && are_equal(field, other));
}

// Objects of one node are equal where their JSON is.
static int is_same_json(const Value *left, const Value *right, const Buffer *out) {
  if (out->failed || left->json_size != right->json_size) return 0;
  return !memcmp(out->bytes + left->json_at, out->bytes + right->json_at, left->json_size);
}

static int is_first_of(const Value *field, const Value *items, const Buffer *out) {
  if (!items->number) return !field->present;
  if (!field->present) return 0;
  if (field->fields) return is_same_json(field, items, out);
  // Of a default nothing is known but the number of its entries.
  return items->text.bytes && text_equal(field->text, items->text);
}

static int is_kept(const Rule *rule, const Value *values, const Buffer *out) {
  const Operand *first = &rule->operands[0], *second = first + (rule->count > 1);
  const Value *left = seen(first, values), *right = seen(second, values);
  switch (rule->op) {
    case RULE_FIELD_AT_MOST:
    case RULE_LENGTH_AT_MOST: return left->number <= right->number;
    case RULE_SUM_AT_MOST: return sum_at_most(rule, values);
    case RULE_NOT_BEFORE: return not_before(rule, values);
    case RULE_PRESENT_EXACTLY_IN: return left->present == is_among(second, values);
    case RULE_PRESENT_IN: return left->present || !is_among(second, values);
    case RULE_ABSENT_IN: return !left->present || !is_among(second, values);
    case RULE_PRESENT_EXACTLY_WHEN: return left->present == (right->present && right->number);
    case RULE_ALL_OR_NONE: return all_or_none(rule, values);
    case RULE_REQUIRES_ENTRY: return requires_entry(rule, values);
    case RULE_EQUAL_OR_ABSENT: return equal_or_absent(left, right);
    case RULE_EQUAL_EXACTLY_IN: return is_among(first, values) == is_among(second, values);
    case RULE_FIRST_OF: return is_first_of(left, right, out);
  }
  return 0;
}

int keep_rules(const Node *node, const Value *values, const Buffer *out) {
  for (u32 index = 0; index < node->rule_count; index++)
    if (!is_kept(&node->rules[index], values, out)) return 0;
  return 1;
}
