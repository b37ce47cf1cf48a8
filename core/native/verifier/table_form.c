#include "verifier/table_form.h"

#include <stdlib.h>

#include "verifier/input.h"

static int read_columns(TableForm *form, Given *given) {
  u32 known = 0;
  form->column_count = given_below(given, MOST_COLUMNS + 1);
  u32 numbers = given_count(given);
  form->columns = given_room(form->column_count, sizeof *form->columns);
  form->numbered = given_room(numbers, sizeof *form->numbered);
  if (!form->columns || !form->numbered) return 0;
  for (u32 i = 0; i < form->column_count; i++) {
    Column *column = form->columns + i;
    column->kind = (u8)given_below(given, COLUMN_BYTES + 1);
    column->first = known;
    column->count = given_below(given, (i64)numbers - known + 1);
    for (u32 number = 0; number < column->count; number++, known++) {
      form->numbered[known].number = given_number(given);
      form->numbered[known].text = given_text(given);
    }
  }
  return !given->broken;
}

static Part *read_parts(const TableForm *form, Given *given, u32 *count) {
  *count = given_count(given);
  Part *parts = given_room(*count, sizeof *parts);
  for (u32 i = 0; parts && i < *count; i++) {
    parts[i].name = given_text(given);
    parts[i].left_out = given_text(given);
    parts[i].column = given_below(given, form->column_count);
  }
  return parts;
}

// The number of a column and one, 0 for none.
static i32 read_column(const TableForm *form, Given *given) {
  return (i32)given_below(given, (i64)form->column_count + 1) - 1;
}

static int read_form(TableForm *form, Given *given) {
  if (!read_columns(form, given)) return 0;
  form->fields = read_parts(form, given, &form->field_count);
  form->markers = read_parts(form, given, &form->marker_count);
  if (!form->fields || !form->markers) return 0;
  form->parts = given_below(given, SCAN_PARTS + 1);
  for (u32 part = 0; part < form->parts; part++) {
    form->key[part] = given_below(given, form->column_count);
    form->is_number[part] = (u8)given_below(given, 2);
  }
  form->tenant = read_column(form, given);
  form->tenant_may_lack = (u8)given_below(given, 2);
  form->expires = read_column(form, given);
  form->version = read_column(form, given);
  return removals_read(&form->removals, given, form->column_count) && form->parts && given->at == given->end;
}

TableForm *ts_table_form_new(const u8 *bytes, size_t size) {
  TableForm *form = calloc(1, sizeof *form);
  if (!form) return NULL;
  form->memory = malloc(size + 1);
  if (form->memory) {
    memcpy(form->memory, bytes, size);
    Given given = {form->memory, form->memory + size, 0};
    if (read_form(form, &given)) return form;
  }
  ts_table_form_free(form);
  return NULL;
}

void ts_table_form_free(TableForm *form) {
  if (!form) return;
  free(form->memory);
  free(form->columns);
  free(form->numbered);
  free(form->fields);
  free(form->markers);
  removals_free(&form->removals);
  free(form);
}
