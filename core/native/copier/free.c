// Maps with free names, and free JSON.
#include "copier/judging.h"
#include "copier/text.h"

typedef struct {
  Text last; // `bytes` NULL in front of the first name
  int must_be_lower;
} Names;

// Adds a name and a colon, where it is greater than the last one.
static int add_name(Names *names, Text name, Buffer *out) {
  int plain;
  // Objects with such names may be references, or stand for dates.
  if (name.size && name.bytes[0] == '$') return 0;
  if (names->last.bytes && text_compare(names->last, name) >= 0) return 0;
  if (text_points(name, &plain) < 0) return 0;
  if (names->must_be_lower && !text_is_lower(name)) return 0;
  if (names->last.bytes) buffer_add_byte(out, ',');
  json_text(out, name, plain);
  buffer_add_byte(out, ':');
  names->last = name;
  return 1;
}

// Whether a name is what its node asks for.
static int name_fits(const Checker *checker, const Node *map, Text name) {
  int plain;
  i64 points = text_points(name, &plain);
  return text_fits(&checker->program->nodes[map->low], name, points, plain);
}

static int check_members(Checker *checker, const Node *node, const Element *element, Buffer *out) {
  Walk walk = walk_of(element->bytes, element->size);
  Names names = {{NULL, 0}, 0};
  u32 place = checker->used;
  while (walk.at < walk.stop) {
    Text name;
    Element member;
    Value value = {0};
    if (!walk_next(&walk, &name, &member) || !add_name(&names, name, out) || !name_fits(checker, node, name)) return 0;
    if (!check_value(checker, (u32)node->item, &member, &value, out)) return 0;
    checker->used = place;
  }
  return 1;
}

int check_map(Checker *checker, const Node *node, const Element *element, Buffer *out) {
  if (element->type != BSON_OBJECT) return 0;
  buffer_add_byte(out, '{');
  checker->maps++;
  if (!check_members(checker, node, element, out)) return 0;
  checker->maps--;
  buffer_add_byte(out, '}');
  return 1;
}

static int add_json(const Element *element, u32 depth, Buffer *out);

static int add_text(Text text, Buffer *out) {
  int plain;
  if (text_points(text, &plain) < 0 || (!plain && memchr(text.bytes, 0, text.size))) return 0;
  json_text(out, text, plain);
  return 1;
}

static int add_number(const Element *element, Buffer *out) {
  double value;
  memcpy(&value, element->bytes, sizeof value);
  return json_number(out, value);
}

static int add_flag(const Element *element, Buffer *out) {
  if (*element->bytes > 1) return 0;
  buffer_add(out, *element->bytes ? "true" : "false", *element->bytes ? 4 : 5);
  return 1;
}

// A date is read as the object of twinstore.models.fields that stands for it.
static int add_date(i64 instant, Buffer *out) {
  if (instant < LEAST_INSTANT || instant > MOST_INSTANT) return 0;
  buffer_add(out, "{\"$date\":", 9);
  json_instant(out, instant);
  buffer_add_byte(out, '}');
  return 1;
}

static int add_members(const Element *element, u32 depth, int must_be_lower, Buffer *out) {
  Walk walk = walk_of(element->bytes, element->size);
  Names names = {{NULL, 0}, must_be_lower};
  buffer_add_byte(out, '{');
  while (walk.at < walk.stop) {
    Text name;
    Element member;
    if (!walk_next(&walk, &name, &member) || !add_name(&names, name, out)) return 0;
    if (!add_json(&member, depth, out)) return 0;
  }
  buffer_add_byte(out, '}');
  return 1;
}

static int add_entries(const Element *element, u32 depth, Buffer *out) {
  Walk walk = walk_of(element->bytes, element->size);
  buffer_add_byte(out, '[');
  for (u32 count = 0; walk.at < walk.stop; count++) {
    Text name;
    Element entry;
    if (!walk_next(&walk, &name, &entry) || !is_entry_name(name, count)) return 0;
    if (count) buffer_add_byte(out, ',');
    if (!add_json(&entry, depth, out)) return 0;
  }
  buffer_add_byte(out, ']');
  return 1;
}

static int add_json(const Element *element, u32 depth, Buffer *out) {
  if (depth > MOST_DEPTH) return 0;
  switch (element->type) {
    case BSON_TEXT: return add_text(text_in(element), out);
    case BSON_INT: json_int(out, (i32)read_u32(element->bytes)); return 1;
    case BSON_LONG: json_int(out, read_i64(element->bytes)); return 1;
    case BSON_FLAG: return add_flag(element, out);
    case BSON_NULL: buffer_add(out, "null", 4); return 1;
    case BSON_DOUBLE: return add_number(element, out);
    case BSON_INSTANT: return add_date(read_i64(element->bytes), out);
    case BSON_OBJECT: return add_members(element, depth + 1, 0, out);
    case BSON_ARRAY: return add_entries(element, depth + 1, out);
    default: return 0;
  }
}

int check_json(Checker *checker, const Node *node, const Element *element, Buffer *out) {
  return element->type == BSON_OBJECT && add_members(element, checker->depth, (node->flags & LOWER_KEYS) != 0, out);
}
