#include "verifier/document_form.h"

#include <stdlib.h>

#include "verifier/input.h"

static int is_rising(Span left, Span right) {
  size_t shorter = left.size < right.size ? left.size : right.size;
  int order = shorter ? memcmp(left.bytes, right.bytes, shorter) : 0;
  return order < 0 || (!order && left.size < right.size);
}

static int read_spots(DocumentForm *form, Given *given) {
  form->spot_count = given_count(given);
  u32 members = given_count(given);
  form->spots = given_room(form->spot_count, sizeof *form->spots);
  form->members = given_room(members, sizeof *form->members);
  if (!form->spots || !form->members) return 0;
  for (u32 number = 0; number < form->spot_count; number++) {
    Spot *spot = form->spots + number;
    spot->kind = (u8)given_below(given, PLACE_BYTES + 1);
    spot->item = given_below(given, form->spot_count);
    spot->first = form->member_count;
    spot->count = given_below(given, (i64)members - form->member_count + 1);
    for (u32 i = 0; i < spot->count; i++) {
      Member *member = form->members + form->member_count++;
      member->name = given_text(given);
      member->place = given_below(given, form->spot_count);
      if (i && !is_rising(member[-1].name, member->name)) return 0;
    }
  }
  // Where no place is known, values stand plainly.
  return !given->broken && form->spot_count && form->spots->kind == PLACE_PLAIN;
}

static int read_tops(DocumentForm *form, Given *given) {
  form->top_count = given_below(given, MOST_TOPS + 1);
  form->tops = given_room(form->top_count, sizeof *form->tops);
  form->version = -1;
  if (!form->tops) return 0;
  for (u32 number = 0; number < form->top_count; number++) {
    Top *top = form->tops + number;
    top->name = given_text(given);
    top->role = (u8)given_below(given, ROLE_IGNORED + 1);
    top->place = given_below(given, form->spot_count);
    if (top->role == ROLE_VERSION) form->version = (i32)number;
    if (number && !is_rising(top[-1].name, top->name)) return 0;
  }
  return !given->broken;
}

static int read_markers(DocumentForm *form, Given *given) {
  form->marker_count = given_below(given, (i64)form->top_count + 1);
  form->markers = given_room(form->marker_count, sizeof *form->markers);
  form->marker_names = given_room(form->marker_count, sizeof *form->marker_names);
  if (!form->markers || !form->marker_names) return 0;
  for (u32 number = 0; number < form->marker_count; number++) {
    form->marker_names[number] = given_text(given);
    form->markers[number] = given_below(given, form->top_count);
  }
  return !given->broken;
}

// The number of a top and one, 0 for none.
static i32 read_top(const DocumentForm *form, Given *given) {
  return (i32)given_below(given, (i64)form->top_count + 1) - 1;
}

static int read_form(DocumentForm *form, Given *given) {
  if (!read_spots(form, given) || !read_tops(form, given) || !read_markers(form, given)) return 0;
  form->parts = given_below(given, SCAN_PARTS + 1);
  for (u32 part = 0; part < form->parts; part++) {
    form->key[part] = given_below(given, form->top_count);
    form->is_number[part] = (u8)given_below(given, 2);
  }
  form->identity = (u8)given_below(given, IDENTITY_ANY + 1);
  form->identity_top = read_top(form, given);
  form->tenant = read_top(form, given);
  form->tenant_may_lack = (u8)given_below(given, 2);
  form->expires = read_top(form, given);
  if (form->identity == IDENTITY_SHOWN && form->identity_top < 0) return 0;
  return removals_read(&form->removals, given, form->top_count) && form->parts && given->at == given->end;
}

DocumentForm *ts_document_form_new(const u8 *bytes, size_t size) {
  DocumentForm *form = calloc(1, sizeof *form);
  if (!form) return NULL;
  form->memory = malloc(size + 1);
  if (form->memory) {
    memcpy(form->memory, bytes, size);
    Given given = {form->memory, form->memory + size, 0};
    if (read_form(form, &given)) return form;
  }
  ts_document_form_free(form);
  return NULL;
}

void ts_document_form_free(DocumentForm *form) {
  if (!form) return;
  free(form->memory);
  free(form->spots);
  free(form->members);
  free(form->tops);
  free(form->markers);
  free(form->marker_names);
  removals_free(&form->removals);
  free(form);
}
