#include "verifier/json.h"

#include <stdlib.h>

#include "verifier/values.h"

#define FEW 32
#define MOST_TEXT 30 // of a number with a fraction that is shown
#define LONGEST 19 // digits of an integer of 64 bits

typedef struct {
  const u8 *at, *end;
} Text;

static int is_digit(u8 byte) { return byte >= '0' && byte <= '9'; }

static int order_of(Span left, Span right) {
  // As in showing.c: most names differ in their first byte.
  if (left.size && right.size && *left.bytes != *right.bytes) return *left.bytes < *right.bytes ? -1 : 1;
  size_t shorter = left.size < right.size ? left.size : right.size;
  int order = shorter ? memcmp(left.bytes, right.bytes, shorter) : 0;
  return order ? order : (left.size > right.size) - (left.size < right.size);
}

static int taken(Text *text, const char *wanted, size_t size) {
  if ((size_t)(text->end - text->at) < size || memcmp(text->at, wanted, size)) return 0;
  text->at += size;
  return 1;
}

// ---- numbers

int json_integer(Span text, i64 *value) {
  int negative = text.size && *text.bytes == '-';
  const u8 *at = text.bytes + negative;
  size_t count = text.size - (size_t)negative;
  u64 size = 0;
  if (!count || count > LONGEST || (*at == '0' && (count > 1 || negative))) return 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_digit(at[i])) return 0;
    size = size * 10 + (u64)(at[i] - '0');
  }
  if (size > (u64)INT64_MAX + (u64)negative) return 0;
  *value = negative ? (i64)(0 - size) : (i64)size;
  return 1;
}

// Whether a text is that of a number with a fraction, and of no other spelling of it.
static int show_fraction(Buffer *out, Span text) {
  char copy[MOST_TEXT + 1], *end;
  size_t before = out->size;
  if (!text.size || text.size > MOST_TEXT || !memchr(text.bytes, '.', text.size)) return 0;
  for (size_t i = 0; i < text.size; i++)
    if (!is_digit(text.bytes[i]) && text.bytes[i] != '.' && (i || text.bytes[i] != '-')) return 0;
  memcpy(copy, text.bytes, text.size);
  copy[text.size] = 0;
  double value = strtod(copy, &end);
  if (*end || !scan_fraction(out, value)) return 0;
  return order_of(text, (Span){out->bytes + before, out->size - before}) == 0;
}

int json_show_number(Buffer *out, Span text) {
  i64 value;
  if (!json_integer(text, &value)) return show_fraction(out, text);
  buffer_add(out, text.bytes, text.size);
  return 1;
}

static int show_number(Json *json, Text *text) {
  const u8 *from = text->at;
  while (text->at < text->end && (is_digit(*text->at) || *text->at == '-' || *text->at == '.')) text->at++;
  return json_show_number(json->out, (Span){from, (size_t)(text->at - from)});
}

// ---- texts

// What follows a backslash, as the server and the comparison write it; other spellings mean the same.
static size_t escape(const u8 *at, size_t left) {
  if (left >= 2 && at[1] && strchr("\"\\bfnrt", at[1])) return 2;
  if (left < 6 || memcmp(at, "\\u00", 4)) return 0;
  u8 high = at[4], low = at[5];
  if (high == '1' && (is_digit(low) || (low >= 'a' && low <= 'f'))) return 6;
  // Of 8 to 13 all but one have a letter of their own, and nothing may hold U+0000.
  return high == '0' && low && strchr("1234567bef", low) ? 6 : 0;
}

// The text behind a quotation mark, up to the next one.
static int read_text(Text *text, Span *found, int plain) {
  const u8 *from = text->at;
  for (;;) {
    text->at += scan_plain(text->at, (size_t)(text->end - text->at));
    size_t left = (size_t)(text->end - text->at), size = 0;
    if (!left || *text->at == '"') break;
    if (*text->at >= 0x80) size = scan_character(text->at, left);
    if (*text->at == '\\') size = plain ? 0 : escape(text->at, left);
    if (!size) return 0;
    text->at += size;
  }
  *found = (Span){from, (size_t)(text->at - from)};
  return taken(text, "\"", 1);
}

static void add_text(Buffer *out, Span text) {
  buffer_add_byte(out, '"');
  buffer_add(out, text.bytes, text.size);
  buffer_add_byte(out, '"');
}

static int show_text(Json *json, Text *text) {
  Span found;
  if (!read_text(text, &found, 0)) return 0;
  add_text(json->out, found);
  return 1;
}

// ---- objects and lists

static int show_value(Json *json, Text *text, int depth);

static int by_name(const void *left, const void *right) {
  return order_of(((const JsonMember *)left)->name, ((const JsonMember *)right)->name);
}

static int is_sorted(const JsonMember *members, size_t count) {
  for (size_t i = 1; i < count; i++)
    if (order_of(members[i - 1].name, members[i].name) >= 0) return 0;
  return 1;
}

static void sort(JsonMember *members, size_t count) {
  if (count > FEW) {
    qsort(members, count, sizeof *members, by_name);
    return;
  }
  for (size_t i = 1; i < count; i++) {
    JsonMember moved = members[i];
    size_t to = i;
    while (to && order_of(members[to - 1].name, moved.name) > 0) to--;
    memmove(members + to + 1, members + to, (i - to) * sizeof *members);
    members[to] = moved;
  }
}

// The server sorts names by their length first: written once more behind, and moved to where they began.
static int put_in_order(Json *json, JsonMember *members, size_t count, size_t begin) {
  Buffer *out = json->out;
  size_t size = out->size - begin;
  if (is_sorted(members, count)) return 1;
  sort(members, count);
  if (!is_sorted(members, count) || !buffer_need(out, size)) return 0;
  u8 *to = out->bytes + out->size;
  for (size_t i = 0; i < count; i++) {
    if (i) *to++ = ',';
    memcpy(to, out->bytes + members[i].from, members[i].to - members[i].from);
    to += members[i].to - members[i].from;
  }
  memcpy(out->bytes + begin, out->bytes + out->size, size);
  return 1;
}

static int show_member(Json *json, Text *text, int depth) {
  JsonMember member;
  if (json->used == SCAN_NAMES || !taken(text, "\"", 1) || !read_text(text, &member.name, 1)) return 0;
  if (!taken(text, ": ", 2)) return 0;
  size_t place = json->used++;
  member.from = json->out->size;
  add_text(json->out, member.name);
  buffer_add_byte(json->out, ':');
  if (!show_value(json, text, depth)) return 0;
  member.to = json->out->size;
  json->members[place] = member;
  return 1;
}

static int show_object(Json *json, Text *text, int depth) {
  buffer_add_byte(json->out, '{');
  size_t begin = json->out->size, first = json->used;
  if (!taken(text, "}", 1)) {
    do {
      if (json->used > first) buffer_add_byte(json->out, ',');
      if (!show_member(json, text, depth)) return 0;
    } while (taken(text, ", ", 2));
    if (!taken(text, "}", 1) || json->out->failed) return 0;
    if (!put_in_order(json, json->members + first, json->used - first, begin)) return 0;
  }
  json->used = first;
  buffer_add_byte(json->out, '}');
  return 1;
}

static int show_list(Json *json, Text *text, int depth) {
  buffer_add_byte(json->out, '[');
  if (!taken(text, "]", 1)) {
    for (int first = 1; first || taken(text, ", ", 2); first = 0) {
      if (!first) buffer_add_byte(json->out, ',');
      if (!show_value(json, text, depth)) return 0;
    }
    if (!taken(text, "]", 1)) return 0;
  }
  buffer_add_byte(json->out, ']');
  return 1;
}

static int show_word(Json *json, Text *text) {
  static const char *const WORDS[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++) {
    if (!taken(text, WORDS[i], strlen(WORDS[i]))) continue;
    buffer_add(json->out, WORDS[i], strlen(WORDS[i]));
    return 1;
  }
  return 0;
}

static int show_value(Json *json, Text *text, int depth) {
  if (depth > SCAN_DEPTH || text->at == text->end) return 0;
  switch (*text->at) {
    case '{': text->at++; return show_object(json, text, depth + 1);
    case '[': text->at++; return show_list(json, text, depth + 1);
    case '"': text->at++; return show_text(json, text);
    case 't': case 'f': case 'n': return show_word(json, text);
    default: return show_number(json, text);
  }
}

int json_show(Json *json, Span given) {
  Text text = {given.bytes, given.bytes + given.size};
  json->used = 0;
  return show_value(json, &text, 1) && text.at == text.end;
}
