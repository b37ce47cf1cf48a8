// Lists: their entries, how many there are, and their order.
#include "copier/judging.h"
#include "copier/text.h"

// Of which none may be equal to another one, wherever they stand.
#define MOST_DISTINCT 200

// Of the entry before the one that is looked at.
typedef struct {
  Value value;
  const Value *fields;
} Entry;

// The values that were met, of a list that admits each once; else NULL.
typedef struct {
  Value *values;
  u32 count;
} Met;

static int three_way(i64 left, i64 right) { return (left > right) - (left < right); }

static int is_textual(const Node *node) {
  return node->kind == NODE_TEXT || node->kind == NODE_ENUM || node->kind == NODE_CONST;
}

static int compare_values(const Node *node, const Value *left, const Value *right) {
  return is_textual(node) ? text_compare(left->text, right->text) : three_way(left->number, right->number);
}

static int compare_by(const Program *program, const Node *item, const SortKey *key, const Value *left,
                      const Value *right) {
  const Node *node = &program->nodes[item->fields[key->field].node];
  left += key->field;
  right += key->field;
  if (!key->ranked) return compare_values(node, left, right);
  return three_way(node->members[left->number].rank, node->members[right->number].rank);
}

// Whether an entry may stand behind another one.
static int is_ordered(const Program *program, const Node *list, const Value *before, const Value *entry) {
  const Node *item = &program->nodes[list->item];
  for (u32 index = 0; index < list->key_count; index++) {
    int order = compare_by(program, item, &list->keys[index], before, entry);
    if (order) return list->descending ? order > 0 : order < 0;
    if (list->unique) return 0;
  }
  return 1;
}

static int follows(const Program *program, const Node *list, const Entry *before, const Value *entry) {
  switch (list->list_rule) {
    case LIST_SET:
    case LIST_RISING: return compare_values(&program->nodes[list->item], &before->value, entry) < 0;
    case LIST_ORDERED: return is_ordered(program, list, before->fields, entry->fields);
    default: return 1;
  }
}

// Keeps an entry for the next one to be compared with, and gives back what else was taken for it.
static void keep_entry(Checker *checker, const Node *list, u32 place, Entry *before, const Value *entry) {
  before->value = *entry;
  checker->used = place;
  if (list->list_rule != LIST_ORDERED) return;
  u32 field_count = checker->program->nodes[list->item].field_count;
  Value *kept = checker_take(checker, field_count);
  memmove(kept, entry->fields, field_count * sizeof(Value));
  before->fields = kept;
}

static int is_single(const Node *list) { return list->list_rule == LIST_DISTINCT || list->distinct >= 0; }

// Whether an entry is not equal to one that was met, and keeps it among those.
static int is_new(const Program *program, const Node *list, Met *met, const Value *entry) {
  const Node *node = &program->nodes[list->item];
  const Value *value = entry;
  if (list->distinct >= 0) {
    value = &entry->fields[list->distinct];
    node = &program->nodes[node->fields[list->distinct].node];
  }
  for (u32 index = 0; index < met->count; index++)
    if (!compare_values(node, &met->values[index], value)) return 0;
  if (met->count == MOST_DISTINCT) return 0;
  met->values[met->count++] = *value;
  return 1;
}

static int check_entry(Checker *checker, const Node *list, const Element *element, Value *entry, Buffer *out) {
  *entry = (Value){0};
  if (!check_value(checker, (u32)list->item, element, entry, out)) return 0;
  return list->list_rule != LIST_SET || entry->text.size > 0;
}

// Rules compare with the first entry.
static void keep_first(Value *list, const Value *entry) {
  list->text = entry->text;
  list->json_at = entry->json_at;
  list->json_size = entry->json_size;
}

static int check_entries(Checker *checker, const Node *list, Walk walk, Met *met, Value *value, Buffer *out) {
  u32 place = checker->used, count = 0;
  Entry before = {0};
  for (; walk.at < walk.stop; count++) {
    Text name;
    Element element;
    Value entry;
    if (!walk_next(&walk, &name, &element) || !is_entry_name(name, count)) return 0;
    if (count) buffer_add_byte(out, ',');
    if (!check_entry(checker, list, &element, &entry, out)) return 0;
    if (count && !follows(checker->program, list, &before, &entry)) return 0;
    if (met->values && !is_new(checker->program, list, met, &entry)) return 0;
    if (!count) keep_first(value, &entry);
    keep_entry(checker, list, place, &before, &entry);
  }
  value->number = count;
  return list->most < 0 || count <= (u64)list->most;
}

int check_list(Checker *checker, const Node *node, const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_ARRAY) return 0;
  u32 place = checker->used;
  Met met = {is_single(node) ? checker_take(checker, MOST_DISTINCT) : NULL, 0};
  if (is_single(node) && !met.values) return 0;
  buffer_add_byte(out, '[');
  if (!check_entries(checker, node, walk_of(element->bytes, element->size), &met, value, out)) return 0;
  buffer_add_byte(out, ']');
  checker->used = place;
  return 1;
}
