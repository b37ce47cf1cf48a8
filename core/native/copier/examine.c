// What a copy wants to know of packed rows: owners, expired rows, and whether the keys rise.
#include <stdlib.h>

#include "copier/packed.h"
#include "copier/text.h"

typedef struct {
  const u8 *bytes; // NULL where the row has none
  u32 size;
  u64 rows, expired;
} Owner;

// The owners in the order in which they came, and where each one is found by its hash.
typedef struct {
  Owner *owners;
  u32 *places; // number of the owner + 1, 0 where a place is free
  u32 count, room, last;
} Tally;

static u64 hash_of(const u8 *bytes, u32 size) {
  u64 hash = 14695981039346656037u;
  for (u32 at = 0; at < size; at++) hash = (hash ^ bytes[at]) * 1099511628211u;
  return hash ^ hash >> 32;
}

static int is_owner(const Owner *owner, const u8 *bytes, u32 size) {
  return (owner->bytes != NULL) == (bytes != NULL) && owner->size == size &&
         (!size || !memcmp(owner->bytes, bytes, size));
}

// The place of an owner, or the free one where it belongs.
static u32 *place_of(const Tally *tally, const u8 *bytes, u32 size) {
  u32 mask = 2 * tally->room - 1;
  u32 place = (u32)hash_of(bytes, size) & mask;
  while (tally->places[place] && !is_owner(&tally->owners[tally->places[place] - 1], bytes, size))
    place = (place + 1) & mask;
  return &tally->places[place];
}

static int tally_grow(Tally *tally) {
  u32 room = tally->room ? tally->room * 2 : 64;
  if (room > UINT32_MAX / 4) return 0;
  Owner *owners = realloc(tally->owners, room * sizeof(Owner));
  if (owners) tally->owners = owners;
  u32 *places = calloc(2 * (size_t)room, sizeof(u32));
  if (!owners || !places) {
    free(places);
    return 0;
  }
  free(tally->places);
  tally->places = places;
  tally->room = room;
  for (u32 index = 0; index < tally->count; index++)
    *place_of(tally, owners[index].bytes, owners[index].size) = index + 1;
  return 1;
}

// The owner of these bytes, which is made where there is none; NULL where there is no memory.
static Owner *owner_of(Tally *tally, const u8 *bytes, u32 size) {
  // Rows of one owner mostly follow each other.
  if (tally->count && is_owner(&tally->owners[tally->last], bytes, size)) return &tally->owners[tally->last];
  if (tally->count == tally->room && !tally_grow(tally)) return NULL;
  u32 *place = place_of(tally, bytes, size);
  if (!*place) {
    tally->owners[tally->count] = (Owner){bytes, size, 0, 0};
    *place = ++tally->count;
  }
  tally->last = *place - 1;
  return &tally->owners[tally->last];
}

static void add_counts(const Tally *tally, Buffer *counts) {
  for (u32 index = 0; index < tally->count; index++) {
    const Owner *owner = &tally->owners[index];
    buffer_add_u32(counts, owner->bytes ? owner->size : NO_TENANT);
    buffer_add(counts, owner->bytes, owner->size);
    buffer_add(counts, &owner->rows, sizeof owner->rows);
    buffer_add(counts, &owner->expired, sizeof owner->expired);
  }
}

// The text of a packed value that is text, also where it is packed as a position.
static Text key_text(const Node *node, const Packed *value) {
  if (value->tag == TAG_ENUM && *value->bytes < node->member_count) return node->members[*value->bytes].text;
  return (Text){value->bytes, value->size};
}

static int compare_part(const Node *node, const Packed *left, const Packed *right) {
  if (node->kind != NODE_INT) return text_compare(key_text(node, left), key_text(node, right));
  i64 first = read_i64(left->bytes), second = read_i64(right->bytes);
  return (first > second) - (first < second);
}

static int is_key(const Node *node, const Packed *value) {
  return node->kind == NODE_INT ? value->tag == TAG_INT : value->tag == TAG_TEXT || value->tag == TAG_ENUM;
}

// Whether a row has a key, and one behind that of the row before it, if there is one.
static int rises(const Program *program, const Packed *before, const Packed *row) {
  int order = before ? 0 : 1;
  for (u32 index = 0; index < program->key_count; index++) {
    u32 slot = program->key[index];
    const Node *node = node_of(program, slot);
    if (!is_key(node, &row[slot])) return 0;
    if (!order) order = compare_part(node, &row[slot], &before[slot]);
  }
  return order > 0;
}

static int holds(const Condition *condition, const Packed *value) {
  if (!condition->count) return value->tag != TAG_ABSENT;
  for (u32 index = 0; index < condition->count; index++)
    if (value->tag == TAG_ENUM && *value->bytes == condition->numbers[index]) return 1;
  return 0;
}

static int is_expired(const Program *program, const Packed *row, i64 cutoff) {
  if (program->expires < 0 || cutoff == INT64_MIN) return 0;
  const Packed *instant = &row[program->expires];
  if (instant->tag != TAG_INSTANT || read_i64(instant->bytes) > cutoff) return 0;
  for (u32 index = 0; index < program->condition_count; index++)
    if (!holds(&program->conditions[index], &row[program->conditions[index].slot])) return 0;
  return 1;
}

static int count_row(const Program *program, Tally *tally, const Packed *row, int expired) {
  const Packed *tenant = program->tenant < 0 ? NULL : &row[program->tenant];
  int has_tenant = tenant && tenant->tag == TAG_TEXT;
  Owner *owner = owner_of(tally, has_tenant ? tenant->bytes : NULL, has_tenant ? tenant->size : 0);
  if (!owner) return 0;
  owner->rows++;
  owner->expired += (u64)expired;
  return 1;
}

static i64 examine(const Program *program, const u8 *rows, size_t size, i64 cutoff, Tally *tally, Buffer *expired) {
  Packed values[2][MOST_FIELDS];
  i64 count = 0;
  for (const u8 *at = rows, *end = rows + size; at < end; count++) {
    Packed *row = values[count & 1];
    at = packed_row(program, at, end, row);
    if (!at || !rises(program, count ? values[~count & 1] : NULL, row)) return TS_BROKEN;
    int is_due = is_expired(program, row, cutoff);
    if (is_due) buffer_add_u32(expired, (u32)count);
    if (!count_row(program, tally, row, is_due)) return TS_NO_MEMORY;
  }
  return count;
}

i64 ts_examine(const Program *program, const u8 *rows, size_t size, i64 cutoff, Buffer *counts, Buffer *expired) {
  Tally tally = {0};
  buffer_clear(counts);
  buffer_clear(expired);
  i64 count = examine(program, rows, size, cutoff, &tally, expired);
  if (count >= 0) add_counts(&tally, counts);
  free(tally.owners);
  free(tally.places);
  return count >= 0 && (counts->failed || expired->failed) ? TS_NO_MEMORY : count;
}

i64 ts_without(const u8 *rows, size_t size, const u32 *indexes, size_t count, Buffer *out) {
  i64 kept = 0;
  size_t next = 0;
  const u8 *end = rows + size, *stop;
  for (u32 index = 0; rows < end; index++, rows = stop) {
    stop = row_end(rows, end);
    if (!stop) return TS_BROKEN;
    if (next < count && indexes[next] == index) {
      next++;
      continue;
    }
    buffer_add(out, rows, (size_t)(stop - rows));
    kept++;
  }
  if (next < count) return TS_BROKEN;
  return out->failed ? TS_NO_MEMORY : kept;
}
