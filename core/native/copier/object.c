// Objects of a model: each field once, in any order, and nothing else.
#include "copier/judging.h"

// The field of a name, -1 where there is none. Mostly it is the one behind the last one found.
static i32 field_named(const Node *node, Text name, u32 guess) {
  for (u32 tried = 0; tried < node->field_count; tried++, guess++) {
    if (guess >= node->field_count) guess = 0;
    if (node->fields[guess].name.size == name.size && !memcmp(node->fields[guess].name.bytes, name.bytes, name.size))
      return (i32)guess;
  }
  return -1;
}

// Finds the element of each field; 0 where a name is unknown or stands twice.
static int find_fields(const Node *node, const Element *object, Element *found) {
  Walk walk = walk_of(object->bytes, object->size);
  u32 guess = 0;
  for (u32 index = 0; index < node->field_count; index++) found[index].type = 0;
  while (walk.at < walk.stop) {
    Text name;
    Element element;
    if (!walk_next(&walk, &name, &element)) return 0;
    i32 index = field_named(node, name, guess);
    if (index < 0 || found[index].type) return 0;
    found[index] = element;
    guess = (u32)index + 1;
  }
  return 1;
}

int absent_value(const Field *field, Value *value) {
  if (field->presence == FIELD_REQUIRED) return 0;
  if (field->presence == FIELD_DEFAULT) *value = (Value){.present = 1, .number = field->default_number, .text = field->default_text};
  return 1;
}

int is_left_out(const Field *field, const Node *node, const Value *value, Text json) {
  if (!field->default_json.size) return 1;
  switch (node->kind) {
    case NODE_TEXT:
    case NODE_ENUM:
    case NODE_CONST:
      return value->text.size == field->default_text.size &&
             !memcmp(value->text.bytes, field->default_text.bytes, value->text.size);
    case NODE_INT:
    case NODE_FLAG: return value->number == field->default_number;
    case NODE_NUMBER: return value->real == (double)field->default_number;
    case NODE_INSTANT: return 1;
    default: return json.size == field->default_json.size && !memcmp(json.bytes, field->default_json.bytes, json.size);
  }
}

static void add_name(Buffer *out, size_t begin, Text name) {
  if (!buffer_need(out, name.size + 4)) return;
  u8 *to = out->bytes + out->size;
  if (out->size > begin) *to++ = ',';
  *to++ = '"';
  memcpy(to, name.bytes, name.size);
  to += name.size;
  *to++ = '"';
  *to++ = ':';
  out->size = (size_t)(to - out->bytes);
}

static int add_field(Checker *checker, const Field *field, const Element *element, Value *value, Buffer *out,
                     size_t begin) {
  if (!is_present(element)) {
    // A null is the value of a field that may be absent, and of no other one.
    if (element->type && (field->presence != FIELD_OPTIONAL || field->left_out)) return 0;
    if (!absent_value(field, value)) return 0;
    if (element->type || (value->present && !field->left_out)) checker->rewritten = 1;
    if (!value->present || field->left_out) return 1;
    add_name(out, begin, field->name);
    buffer_add(out, field->default_json.bytes, field->default_json.size);
    return 1;
  }
  add_name(out, begin, field->name);
  size_t at = out->size;
  if (!check_value(checker, field->node, element, value, out)) return 0;
  if (!field->left_out || out->failed) return 1;
  Text json = {out->bytes + at, (u32)(out->size - at)};
  return !is_left_out(field, &checker->program->nodes[field->node], value, json);
}

int check_object(Checker *checker, const Node *node, const Element *element, Value *value, Buffer *out) {
  if (element->type != BSON_OBJECT) return 0;
  u32 place = checker->used;
  Value *values = checker_take(checker, node->field_count);
  if (!values || !find_fields(node, element, checker->elements + place)) return 0;
  buffer_add_byte(out, '{');
  size_t begin = out->size;
  for (u32 index = 0; index < node->field_count; index++) {
    u32 number = node->written[index];
    values[number] = (Value){0};
    if (!add_field(checker, &node->fields[number], &checker->elements[place + number], &values[number], out, begin))
      return 0;
  }
  buffer_add_byte(out, '}');
  value->fields = values;
  return keep_rules(node, values, out);
}
