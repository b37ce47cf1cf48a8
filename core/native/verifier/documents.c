// Documents as they are stored: shown one by one, and added to the digests.
#include <stdlib.h>

#include "verifier/digests.h"
#include "verifier/showing.h"
#include "verifier/values.h"

#define NO_TENANT_LABEL ":none"
#define FIRST_VERSION 1

static const Span ID = {(const u8 *)"_id", 3};
static const Span NO_TENANT = {(const u8 *)NO_TENANT_LABEL, sizeof NO_TENANT_LABEL - 1};

// A document under way: for each top the element that stands there, NULL where there is none.
typedef struct {
  Shower shower;
  Element identity;
  const Element *found[MOST_TOPS];
  int is_partial; // a name is ignored
  u8 digits[SCAN_PARTS][SHOW_DIGITS]; // of a key
  i64 cutoff;
} Work;

// ---- what the top level must be like

// The elements in the order of their names, with `_id` under the name of its field.
static int collect(Work *work, Span document) {
  Shower *shower = &work->shower;
  const DocumentForm *form = shower->form;
  Elements elements;
  shower->used = 0;
  // The server puts it in front, and the client writes it there whatever it read.
  if (!bson_elements(&elements, document) || bson_next(&elements, &work->identity) <= 0) return 0;
  if (!span_same(work->identity.name, ID) || !show_collect(shower, &elements)) return 0;
  if (form->identity == IDENTITY_SHOWN) {
    if (shower->used == SCAN_NAMES) return 0;
    Element shown = work->identity;
    shown.name = form->tops[form->identity_top].name;
    shower->elements[shower->used++] = shown;
  }
  return show_sort(shower->elements, shower->used);
}

// What is not shown has to be given back all the same, or no copy reads the document.
static int take_top(Work *work, u32 number, const Element *element) {
  u8 role = work->shower.form->tops[number].role;
  if (role >= ROLE_SKIPPED && !show_returns(&work->shower, element, 1)) return 0;
  work->is_partial |= role == ROLE_IGNORED;
  work->found[number] = element;
  return 1;
}

// Finds the tops; any other name is shown, but for a second `_id`.
static int find_tops(Work *work) {
  const DocumentForm *form = work->shower.form;
  const Element *element = work->shower.elements, *end = element + work->shower.used;
  work->is_partial = 0;
  for (u32 number = 0; number < form->top_count; number++) work->found[number] = NULL;
  for (u32 number = 0; element < end;) {
    int order = number < form->top_count ? show_order(form->tops[number].name, element->name) : 1;
    if (order > 0 && span_same(element->name, ID)) return 0;
    if (!order && !take_top(work, number, element)) return 0;
    if (order <= 0) number++;
    if (order >= 0) element++;
  }
  return 1;
}

static const Element *found_at(const Work *work, i32 top) { return top < 0 ? NULL : work->found[top]; }

static int is_version(const Work *work) {
  if (work->shower.form->version < 0) return 1;
  const Element *version = found_at(work, work->shower.form->version);
  return version && version->type == BSON_LONG && bson_long(version->value.bytes) >= FIRST_VERSION;
}

// ---- key, owner, removal

static u8 key_kind(const DocumentForm *form, u32 part) { return form->spots[form->tops[form->key[part]].place].kind; }
static int is_digits(u8 kind) { return kind == PLACE_OBJECT_ID || kind == PLACE_UUID; }

// The text of an ObjectId or UUID is written to `digits`.
static int read_part(const DocumentForm *form, u32 number, const Element *element, KeyPart *part, u8 *digits) {
  u8 kind = key_kind(form, number);
  if (!element) return 0;
  if (is_digits(kind)) {
    part->text = show_digits(kind, element, digits);
    return part->text.bytes != NULL;
  }
  if (!form->is_number[number]) return bson_text(element, &part->text);
  if (element->type != BSON_INT && element->type != BSON_LONG) return 0;
  part->number = element->type == BSON_INT ? bson_int(element->value.bytes) : bson_long(element->value.bytes);
  return 1;
}

static int read_key(Work *work, Row *row) {
  const DocumentForm *form = work->shower.form;
  for (u32 part = 0; part < form->parts; part++) {
    if (!read_part(form, part, work->found[form->key[part]], row->key + part, work->digits[part])) return 0;
    if (!form->is_number[part] && row->key[part].text.size > SCAN_KEY_TEXT) return 0;
  }
  return 1;
}

// Texts with a colon, or empty ones, are joined in another way; they are rare enough.
static int joins_plainly(const DocumentForm *form, const KeyPart *key) {
  if (form->parts == 2 && form->is_number[1]) return 1;
  for (u32 part = 0; part + 1 < form->parts; part++) {
    Span text = key[part].text;
    if (!form->is_number[part] && (!text.size || memchr(text.bytes, ':', text.size))) return 0;
  }
  return 1;
}

static int is_joined(const Work *work, const KeyPart *key) {
  const DocumentForm *form = work->shower.form;
  Buffer *out = work->shower.out;
  Span identity;
  if (!bson_text(&work->identity, &identity) || !joins_plainly(form, key)) return 0;
  out->size = 0;
  for (u32 part = 0; part < form->parts; part++) {
    if (part) buffer_add_byte(out, ':');
    if (form->is_number[part])
      scan_integer(out, key[part].number);
    else
      buffer_add(out, key[part].text.bytes, key[part].text.size);
  }
  return span_same(identity, (Span){out->bytes, out->size});
}

static int is_right_identity(const Work *work, const KeyPart *key) {
  switch (work->shower.form->identity) {
    case IDENTITY_OF_KEY: return is_joined(work, key);
    case IDENTITY_ANY: return work->identity.type == BSON_OBJECT_ID;
    default: return 1;
  }
}

static int read_owner(const Work *work, Row *row) {
  const DocumentForm *form = work->shower.form;
  const Element *tenant = found_at(work, form->tenant);
  row->owner = NO_TENANT;
  if (form->tenant < 0) return 1;
  if (!tenant || tenant->type == BSON_NULL) return form->tenant_may_lack;
  if (!bson_text(tenant, &row->owner)) return 0;
  // What is no label is counted under another one.
  return row->owner.size && row->owner.size <= SCAN_LABEL && !span_same(row->owner, NO_TENANT);
}

static int holds(const Work *work, const Removal *removal, int *known) {
  const Element *element = work->found[removal->place];
  Span text;
  *known = element && bson_text(element, &text);
  return *known && removal_admits(&work->shower.form->removals, removal, text);
}

// Whether retention removes the row; 0 where that cannot be told here.
static int read_removal(const Work *work, Row *row) {
  const DocumentForm *form = work->shower.form;
  const Element *instant = found_at(work, form->expires);
  row->expired = instant && instant->type == BSON_DATE && bson_long(instant->value.bytes) <= work->cutoff;
  if (!row->expired) return 1;
  if (!form->removals.known) return 0;
  for (u32 number = 0; number < form->removals.count; number++) {
    int known, met = holds(work, form->removals.conditions + number, &known);
    if (!known) return 0;
    row->expired = row->expired && met;
  }
  return 1;
}

// ---- content

static int show_fields(Work *work) {
  Shower *shower = &work->shower;
  const DocumentForm *form = shower->form;
  u32 number = 0;
  int first = 1;
  for (const Element *element = shower->elements, *end = element + shower->used; element < end; element++) {
    while (number < form->top_count && (!work->found[number] || work->found[number] < element)) number++;
    const Top *top = number < form->top_count && work->found[number] == element ? form->tops + number : NULL;
    if (top && top->role != ROLE_FIELD) continue;
    // A service takes it for an absent value, and a copy writes none.
    if (element->type == BSON_NULL) return 0;
    if (!first) buffer_add_byte(shower->out, ',');
    first = 0;
    if (!scan_text(shower->out, element->name.bytes, element->name.size)) return 0;
    buffer_add_byte(shower->out, ':');
    Element shown = *element;
    size_t used = shower->used;
    if (!show_value(shower, &shown, top ? top->place : 0, 1)) return 0;
    shower->used = used;
  }
  return 1;
}

static int show_markers(Work *work) {
  Shower *shower = &work->shower;
  const DocumentForm *form = shower->form;
  int first = 1;
  for (u32 number = 0; number < form->marker_count; number++) {
    const Element *element = work->found[form->markers[number]];
    if (!element) continue;
    if (element->type == BSON_NULL) return 0;
    if (!first) buffer_add_byte(shower->out, ',');
    first = 0;
    if (!scan_text(shower->out, form->marker_names[number].bytes, form->marker_names[number].size)) return 0;
    buffer_add_byte(shower->out, ':');
    if (!show_value(shower, element, form->tops[form->markers[number]].place, 1)) return 0;
  }
  return 1;
}

static int show_content(Work *work) {
  Buffer *out = work->shower.out;
  out->size = 0;
  buffer_add(out, "{\"doc\":{", 8);
  if (!show_fields(work)) return 0;
  buffer_add(out, "},\"storage\":{", 13);
  if (!show_markers(work)) return 0;
  buffer_add(out, "}}", 2);
  return !out->failed;
}

static int show_document(Work *work, Span document, Row *row) {
  int is_shown = collect(work, document) && find_tops(work) && is_version(work) && read_key(work, row) &&
         is_right_identity(work, row->key) && read_owner(work, row) && read_removal(work, row) && show_content(work);
  row->is_partial = work->is_partial;
  return is_shown;
}

// ---- documents that are not shown

static Span stored_name(const DocumentForm *form, u32 top) {
  return form->identity == IDENTITY_SHOWN && (i32)top == form->identity_top ? ID : form->tops[top].name;
}

// How often a name stands in a document, and the first element of it; -1 where the document is broken.
static int first_of(Span document, Span name, Element *first) {
  Elements elements;
  Element element;
  int found, count = 0;
  if (!bson_elements(&elements, document)) return -1;
  while ((found = bson_next(&elements, &element)) > 0) {
    if (!span_same(element.name, name)) continue;
    if (!count) *first = element;
    count++;
  }
  return found ? -1 : count;
}

// Whether a value of another type than the key has comes before all keys, or behind them all. A symbol compares
// like a text, and a number like any other; of a key with more parts any range may have it.
static int is_beyond(const DocumentForm *form, int count, u8 type) {
  if (form->parts != 1) return 0;
  if (!count) return 1;
  if (is_digits(key_kind(form, 0))) return type != (key_kind(form, 0) == PLACE_UUID ? BSON_BINARY : BSON_OBJECT_ID);
  if (form->is_number[0]) return type != BSON_DOUBLE && type != BSON_DECIMAL;
  return type != BSON_SYMBOL && type != BSON_TEXT;
}

static void place_declined(const DocumentForm *form, Span document, Digests *digests) {
  KeyPart key[SCAN_PARTS];
  u8 digits[SCAN_PARTS][SHOW_DIGITS];
  for (u32 part = 0; part < form->parts; part++) {
    Element element = {0};
    int count = first_of(document, stored_name(form, form->key[part]), &element);
    if (count == 1 && read_part(form, part, &element, key + part, digits[part])) continue;
    if ((count == 0 || count == 1) && is_beyond(form, count, element.type))
      digests_beyond(digests);
    else
      digests_unplaced(digests);
    return;
  }
  digests_unproven(digests, digests_range(digests, key));
}

// ---- many documents

static int begin(Work *work, const DocumentForm *form, Buffer *out, i64 cutoff) {
  memset(work, 0, sizeof *work);
  work->shower.form = form;
  work->shower.out = out;
  work->cutoff = cutoff;
  work->shower.elements = malloc(SCAN_NAMES * sizeof(Element));
  return work->shower.elements != NULL;
}

// 0 where there is no memory.
static int add(const Sink *sink, Span document, const Row *row, Span content, Buffer *scratch) {
  u32 range = digests_range(sink->digests, row->key);
  int accepted = sink->accepts && sink->accepts(sink->documents, document.bytes, document.size, scratch) == 1;
  // The exact way judges what is stored, not what is shown of it.
  return digests_add(sink->digests, range, row, content) && (accepted || digests_ask(sink, range, document));
}

static int scan_one(Work *work, Span document, const Sink *sink, Buffer *scratch) {
  Row row;
  int is_shown = show_document(work, document, &row);
  if (!is_shown)
    place_declined(work->shower.form, document, sink->digests);
  else if (!add(sink, document, &row, (Span){work->shower.out->bytes, work->shower.out->size}, scratch))
    return 0;
  if (sink->cells) {
    buffer_add_u32(sink->cells, is_shown ? digests_cell(sink->digests) : TS_NO_CELL);
    buffer_add_u32(sink->cells, is_shown ? digests_total(sink->digests) : TS_NO_CELL);
  }
  return !work->shower.out->failed && !(sink->cells && sink->cells->failed);
}

static i64 scan_all(Work *work, Span raw, const Sink *sink, Buffer *scratch) {
  i64 rows = 0;
  for (size_t at = 0; at < raw.size; rows++) {
    size_t left = raw.size - at;
    i32 size = left < sizeof(i32) ? 0 : bson_int(raw.bytes + at);
    if (size <= 0 || (size_t)size > left) return TS_BROKEN;
    if (!scan_one(work, (Span){raw.bytes + at, (size_t)size}, sink, scratch)) return TS_NO_MEMORY;
    at += (size_t)size;
  }
  return rows;
}

static int fits(const DocumentForm *form, const Digests *digests) {
  if (digests_parts(digests) != form->parts) return 0;
  for (u32 part = 0; part < form->parts; part++)
    if (digests_is_number(digests, part) != form->is_number[part]) return 0;
  return 1;
}

i64 ts_scan_documents(const DocumentForm *form, const u8 *raw, size_t size, const Sink *sink) {
  Buffer content = {0}, scratch = {0};
  Work work;
  if (!fits(form, sink->digests)) return TS_BROKEN;
  i64 rows = begin(&work, form, &content, sink->cutoff) ? scan_all(&work, (Span){raw, size}, sink, &scratch) : TS_NO_MEMORY;
  free(work.shower.elements);
  free(content.bytes);
  free(scratch.bytes);
  return rows;
}

i64 ts_show_document(const DocumentForm *form, const u8 *raw, size_t size, Buffer *content) {
  Work work;
  Row row;
  if (!begin(&work, form, content, INT64_MIN)) return TS_NO_MEMORY;
  int shown = show_document(&work, (Span){raw, size}, &row);
  free(work.shower.elements);
  return content->failed ? TS_NO_MEMORY : shown;
}
