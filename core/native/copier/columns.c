#include "copier/columns.h"

#include <stdlib.h>

#include "copier/input.h"

// The least bytes of a column in a layout: slot, kind, length of the absent field, number of members.
#define LEAST_COLUMN 32

static const Text *read_texts(Input *input, u32 most, u32 *count) {
  *count = input_count(input, 8, most);
  Text *texts = input_room(input, *count ? *count : 1, sizeof *texts);
  for (u32 i = 0; texts && i < *count; i++) texts[i] = input_text(input);
  return texts;
}

// Whether a text is a whole field: its length, or -1, and as many bytes.
static int is_field(Text text) {
  if (text.size < 4) return 0;
  u32 length = read_be32(text.bytes);
  return length == 0xFFFFFFFFu ? text.size == 4 : length == text.size - 4;
}

static void read_column(Input *input, const Program *program, Column *column) {
  column->slot = (i32)input_between(input, -1, (i64)program->slot_count - 1);
  column->kind = (ColumnKind)input_between(input, 0, COLUMN_KINDS - 1);
  column->absent = input_text(input);
  column->members = read_texts(input, UINT8_MAX + 1, &column->member_count);
  if (input->failed) return;
  if (column->absent.size && !is_field(column->absent)) input->failed = 1;
  for (u32 i = 0; i < column->member_count; i++)
    if (!is_field(column->members[i])) input->failed = 1;
}

static void read_columns(Input *input, Columns *columns) {
  columns->count = input_count(input, LEAST_COLUMN, MOST_COLUMNS);
  Column *list = input_room(input, columns->count ? columns->count : 1, sizeof *list);
  for (u32 i = 0; list && i < columns->count; i++) read_column(input, columns->program, &list[i]);
  columns->columns = list;
  u32 count = 0;
  columns->names = read_texts(input, MOST_FIELDS, &count);
  if (count != columns->program->field_count || input->at != input->end) input->failed = 1;
}

TS_API Columns *ts_columns_new(const Program *program, const u8 *layout, size_t size) {
  Columns *columns = program->slot_count && program->slot_count <= MOST_SLOTS ? calloc(1, sizeof *columns) : NULL;
  if (!columns) return NULL;
  Input input = {layout, layout + size, NULL, 0};
  columns->program = program;
  read_columns(&input, columns);
  columns->memory = input.blocks;
  if (!input.failed) return columns;
  ts_columns_free(columns);
  return NULL;
}

TS_API void ts_columns_free(Columns *columns) {
  if (!columns) return;
  blocks_free(columns->memory);
  free(columns);
}
