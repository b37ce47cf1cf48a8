// Lines of a COPY in text form: shown one by one, and added to the digests.
#include <stdlib.h>

#include "verifier/digests.h"
#include "verifier/instants.h"
#include "verifier/json.h"
#include "verifier/table_form.h"
#include "verifier/values.h"

#define NO_TENANT_LABEL ":none"

static const Span NO_TENANT = {(const u8 *)NO_TENANT_LABEL, sizeof NO_TENANT_LABEL - 1};

typedef struct {
  const TableForm *form;
  Json json;
  Buffer texts;               // of columns in which something is escaped
  Buffer bytes;               // of a column that holds them as digits
  Span values[MOST_COLUMNS];  // no bytes for null
  i64 cutoff;
} Work;

// ---- columns

static int unescaped(u8 byte) {
  switch (byte) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    case '\\': return '\\';
    default: return -1;
  }
}

// There is room for the whole line, because nothing becomes longer.
static int unescape(Buffer *texts, Span *value) {
  u8 *from = texts->bytes + texts->size, *to = from;
  for (size_t i = 0; i < value->size; i++) {
    u8 byte = value->bytes[i];
    if (byte == '\\') {
      int meant = ++i < value->size ? unescaped(value->bytes[i]) : -1;
      if (meant < 0) return 0;
      byte = (u8)meant;
    }
    *to++ = byte;
  }
  *value = (Span){from, (size_t)(to - from)};
  texts->size += value->size;
  return 1;
}

static int read_value(Work *work, Span *value) {
  if (value->size == 2 && !memcmp(value->bytes, "\\N", 2)) {
    *value = (Span){NULL, 0};
    return 1;
  }
  return !memchr(value->bytes, '\\', value->size) || unescape(&work->texts, value);
}

// Takes a line without its end apart.
static int split(Work *work, Span line) {
  const u8 *at = line.bytes, *end = at + line.size;
  u32 count = work->form->column_count;
  work->texts.size = 0;
  int escaped = memchr(at, '\\', line.size) != NULL;
  if (escaped && !buffer_need(&work->texts, line.size + 1)) return 0;
  for (u32 column = 0; column < count; column++) {
    const u8 *tab = memchr(at, '\t', (size_t)(end - at));
    if (!tab != (column + 1 == count)) return 0;
    Span *value = work->values + column;
    *value = (Span){at, (size_t)((tab ? tab : end) - at)};
    if (escaped && !read_value(work, value)) return 0;
    at = tab ? tab + 1 : end;
  }
  return 1;
}

// ---- values

static const Numbered *member_of(const TableForm *form, const Column *column, Span value) {
  i64 number;
  if (!json_integer(value, &number)) return NULL;
  for (u32 i = column->first; i < column->first + column->count; i++)
    if (form->numbered[i].number == number) return form->numbered + i;
  return NULL;
}

static int show_flag(Buffer *out, Span value) {
  if (value.size != 1 || (*value.bytes != 't' && *value.bytes != 'f')) return 0;
  int is_true = *value.bytes == 't';
  buffer_add(out, is_true ? "true" : "false", is_true ? 4 : 5);
  return 1;
}

static int show_integer(Buffer *out, Span value) {
  i64 number;
  if (!json_integer(value, &number)) return 0;
  buffer_add(out, value.bytes, value.size);
  return 1;
}

static int show_instant(Buffer *out, Span value) {
  i64 milliseconds;
  return instant_read(value, &milliseconds) && scan_instant(out, milliseconds);
}

// Not what is no number, and no minus in front of zero: models take neither.
static int show_decimal(Buffer *out, Span value) {
  size_t at = value.size && *value.bytes == '-', points = 0;
  int is_zero = 1;
  if (at == value.size) return 0;
  for (size_t i = at; i < value.size; i++) {
    points += value.bytes[i] == '.';
    if (value.bytes[i] != '.' && (value.bytes[i] < '0' || value.bytes[i] > '9')) return 0;
    if (value.bytes[i] >= '1') is_zero = 0;
  }
  return points <= 1 && !(at && is_zero) && scan_text(out, value.bytes, value.size);
}

static int half_byte(u8 digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// The server writes them as digits, unless it is told to escape them.
static int show_bytes(Work *work, Span value) {
  Buffer *bytes = &work->bytes;
  if (value.size < 2 || value.size % 2 || memcmp(value.bytes, "\\x", 2)) return 0;
  bytes->size = 0;
  if (!buffer_need(bytes, value.size)) return 0;
  for (size_t at = 2; at < value.size; at += 2) {
    int high = half_byte(value.bytes[at]), low = half_byte(value.bytes[at + 1]);
    if (high < 0 || low < 0) return 0;
    bytes->bytes[bytes->size++] = (u8)(high << 4 | low);
  }
  scan_base64(work->json.out, bytes->bytes, bytes->size);
  return 1;
}

static int show_member(const Work *work, const Column *column, Span value) {
  const Numbered *member = member_of(work->form, column, value);
  return member && scan_text(work->json.out, member->text.bytes, member->text.size);
}

static int show_value(Work *work, u32 number) {
  const Column *column = work->form->columns + number;
  Buffer *out = work->json.out;
  Span value = work->values[number];
  switch (column->kind) {
    case COLUMN_TEXT: return scan_text(out, value.bytes, value.size);
    case COLUMN_INT: return show_integer(out, value);
    case COLUMN_FLAG: return show_flag(out, value);
    case COLUMN_NUMBER: return json_show_number(out, value);
    case COLUMN_INSTANT: return show_instant(out, value);
    case COLUMN_JSON: return json_show(&work->json, value);
    // One that begins at another place than the first comes in an object.
    case COLUMN_ARRAY: return value.size && *value.bytes == '[' && json_show(&work->json, value);
    case COLUMN_DECIMAL: return show_decimal(out, value);
    case COLUMN_BYTES: return show_bytes(work, value);
    default: return show_member(work, column, value);
  }
}

// ---- key, owner, removal

static int read_key(const Work *work, KeyPart *key) {
  const TableForm *form = work->form;
  for (u32 part = 0; part < form->parts; part++) {
    Span value = work->values[form->key[part]];
    if (!value.bytes) return 0;
    key[part].text = value;
    if (form->is_number[part] && !json_integer(value, &key[part].number)) return 0;
  }
  return 1;
}

static int is_short(const Work *work, const KeyPart *key) {
  for (u32 part = 0; part < work->form->parts; part++)
    if (!work->form->is_number[part] && key[part].text.size > SCAN_KEY_TEXT) return 0;
  return 1;
}

static int read_owner(const Work *work, Row *row) {
  const TableForm *form = work->form;
  row->owner = NO_TENANT;
  if (form->tenant < 0) return 1;
  Span tenant = work->values[form->tenant];
  if (!tenant.bytes) return form->tenant_may_lack;
  row->owner = tenant;
  // What is no label is counted under another one.
  return tenant.size && tenant.size <= SCAN_LABEL && !span_same(tenant, NO_TENANT);
}

static int holds(const Work *work, const Removal *removal, int *known) {
  const TableForm *form = work->form;
  const Column *column = form->columns + removal->place;
  Span value = work->values[removal->place];
  const Numbered *member = value.bytes && column->kind == COLUMN_MEMBER ? member_of(form, column, value) : NULL;
  *known = value.bytes && (column->kind == COLUMN_TEXT || member);
  if (member) value = member->text;
  return *known && removal_admits(&form->removals, removal, value);
}

// Whether retention removes the row; 0 where that cannot be told here.
static int read_removal(const Work *work, Row *row) {
  const TableForm *form = work->form;
  i64 instant;
  row->expired = 0;
  if (form->expires < 0 || !work->values[form->expires].bytes) return 1;
  if (!instant_read(work->values[form->expires], &instant)) return 0;
  row->expired = instant <= work->cutoff;
  if (!row->expired) return 1;
  if (!form->removals.known) return 0;
  for (u32 i = 0; i < form->removals.count; i++) {
    int known, met = holds(work, form->removals.conditions + i, &known);
    if (!known) return 0;
    row->expired = row->expired && met;
  }
  return 1;
}

// Whether a text counts changes.
static int is_version(const Work *work) {
  i64 version;
  if (work->form->version < 0) return 1;
  Span value = work->values[work->form->version];
  return value.bytes && json_integer(value, &version) && version >= 1;
}

// ---- content

// What is left out is taken back, with the name in front of it.
static int show_part(Work *work, const Part *part, int *first) {
  Buffer *out = work->json.out;
  size_t before = out->size;
  if (!work->values[part->column].bytes) return !part->left_out.size;
  if (!*first) buffer_add_byte(out, ',');
  if (!scan_text(out, part->name.bytes, part->name.size)) return 0;
  buffer_add_byte(out, ':');
  size_t from = out->size;
  if (!show_value(work, part->column) || out->failed) return 0;
  if (part->left_out.size && span_same(part->left_out, (Span){out->bytes + from, out->size - from}))
    out->size = before;
  else
    *first = 0;
  return 1;
}

static int show_parts(Work *work, const Part *parts, u32 count) {
  int first = 1;
  buffer_add_byte(work->json.out, '{');
  for (u32 i = 0; i < count; i++)
    if (!show_part(work, parts + i, &first)) return 0;
  buffer_add_byte(work->json.out, '}');
  return 1;
}

static int show_content(Work *work) {
  Buffer *out = work->json.out;
  const TableForm *form = work->form;
  out->size = 0;
  buffer_add(out, "{\"doc\":", 7);
  if (!show_parts(work, form->fields, form->field_count)) return 0;
  buffer_add(out, ",\"storage\":", 11);
  if (!show_parts(work, form->markers, form->marker_count)) return 0;
  buffer_add_byte(out, '}');
  return !out->failed;
}

static int show_line(Work *work, Row *row) {
  return read_key(work, row->key) && is_short(work, row->key) && is_version(work) && read_owner(work, row) &&
         read_removal(work, row) && show_content(work);
}

// ---- many lines

static int begin(Work *work, const TableForm *form, Buffer *out, i64 cutoff) {
  memset(work, 0, sizeof *work);
  work->form = form;
  work->cutoff = cutoff;
  work->json.out = out;
  work->json.members = malloc(SCAN_NAMES * sizeof(JsonMember));
  return work->json.members != NULL;
}

static void end(Work *work) {
  free(work->json.members);
  free(work->texts.bytes);
  free(work->bytes.bytes);
}

// A row without a key belongs to the open end of its table.
static void place_declined(const Work *work, int is_split, Digests *digests) {
  KeyPart key[SCAN_PARTS];
  int is_null = 0;
  for (u32 part = 0; is_split && part < work->form->parts; part++)
    is_null |= !work->values[work->form->key[part]].bytes;
  if (is_split && !is_null && read_key(work, key))
    digests_unproven(digests, digests_range(digests, key));
  else if (is_null)
    digests_beyond(digests);
  else
    digests_unplaced(digests);
}

static int scan_one(Work *work, Span line, const Sink *sink) {
  Row row = {0};
  const Buffer *out = work->json.out;
  int is_split = split(work, line);
  if (!is_split || !show_line(work, &row)) {
    place_declined(work, is_split, sink->digests);
    return !out->failed && !work->texts.failed && !work->bytes.failed;
  }
  u32 range = digests_range(sink->digests, row.key);
  Span content = {out->bytes, out->size};
  return digests_add(sink->digests, range, &row, content) && digests_ask(sink, range, content);
}

static i64 scan_all(Work *work, Span raw, const Sink *sink) {
  i64 rows = 0;
  for (const u8 *at = raw.bytes, *stop = at + raw.size; at < stop; rows++) {
    const u8 *newline = memchr(at, '\n', (size_t)(stop - at));
    if (!newline) return TS_BROKEN;
    if (!scan_one(work, (Span){at, (size_t)(newline - at)}, sink)) return TS_NO_MEMORY;
    at = newline + 1;
  }
  return rows;
}

static int fits(const TableForm *form, const Digests *digests) {
  if (digests_parts(digests) != form->parts) return 0;
  for (u32 part = 0; part < form->parts; part++)
    if (digests_is_number(digests, part) != form->is_number[part]) return 0;
  return 1;
}

i64 ts_scan_lines(const TableForm *form, const u8 *raw, size_t size, const Sink *sink) {
  Buffer content = {0};
  Work work;
  if (!fits(form, sink->digests)) return TS_BROKEN;
  i64 rows = begin(&work, form, &content, sink->cutoff) ? scan_all(&work, (Span){raw, size}, sink) : TS_NO_MEMORY;
  end(&work);
  free(content.bytes);
  return rows;
}

i64 ts_show_line(const TableForm *form, const u8 *raw, size_t size, Buffer *content) {
  Work work;
  Row row;
  if (!begin(&work, form, content, INT64_MIN)) return TS_NO_MEMORY;
  int shown = split(&work, (Span){raw, size}) && show_line(&work, &row);
  end(&work);
  return content->failed || work.texts.failed || work.bytes.failed ? TS_NO_MEMORY : shown;
}
