#include "verifier/digests.h"

#include <stdlib.h>

#include "verifier/input.h"
#include "verifier/sha256.h"

#define SMALLEST 64 // places of a table; a power of two, as all its sizes
#define DIGEST 32   // bytes of a SHA-256
#define NONE TS_NO_CELL

typedef struct {
  u32 range, owner;
  u64 count, expired, largest, ignored;
  u64 xor_low, xor_high, sum_low, sum_high; // for reports
  u64 keyed_low, keyed_high;                // for proofs
} Cell;

typedef struct {
  size_t at; // in the labels
  u32 size;
  u8 key[SCAN_SECRET]; // of its rows
} Owner;

// Numbers of cells or owners by their hashes.
typedef struct {
  u32 *places;
  u32 room, used;
} Table;

struct Digests {
  Blocks blocks;
  u8 secret[SCAN_SECRET];
  u8 *memory; // of the bounds
  u32 parts, bounds;
  u8 is_number[SCAN_PARTS];
  KeyPart *keys; // `parts` for each bound
  u8 *unproven;  // for each range
  u64 unplaced;
  u64 rows;
  Buffer labels, owners, cells;
  Table by_label, by_place;
  u32 most_cells, last_owner, last_cell, last_total;
  int is_folded;
};

static int compared(const Digests *digests, const KeyPart *left, const KeyPart *right) {
  for (u32 part = 0; part < digests->parts; part++) {
    const KeyPart *a = left + part, *b = right + part;
    if (digests->is_number[part]) {
      if (a->number != b->number) return a->number < b->number ? -1 : 1;
      continue;
    }
    size_t shorter = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = shorter ? memcmp(a->text.bytes, b->text.bytes, shorter) : 0;
    if (order) return order;
    if (a->text.size != b->text.size) return a->text.size < b->text.size ? -1 : 1;
  }
  return 0;
}

static int read_bounds(Digests *digests, Given *given) {
  for (u32 bound = 0; bound < digests->bounds; bound++) {
    KeyPart *key = digests->keys + (size_t)bound * digests->parts;
    for (u32 part = 0; part < digests->parts; part++) {
      if (digests->is_number[part])
        key[part].number = given_number(given);
      else
        key[part].text = given_text(given);
    }
    if (given->broken || (bound && compared(digests, key - digests->parts, key) >= 0)) return 0;
  }
  return given->at == given->end;
}

static int begin(Digests *digests, const u8 *bounds, size_t size) {
  digests->memory = malloc(size + 1);
  if (!digests->memory) return 0;
  memcpy(digests->memory, bounds, size);
  Given given = {digests->memory, digests->memory + size, 0};
  digests->parts = given_below(&given, SCAN_PARTS + 1);
  if (!digests->parts) return 0;
  for (u32 part = 0; part < digests->parts; part++) digests->is_number[part] = (u8)given_below(&given, 2);
  digests->bounds = given_count(&given);
  digests->keys = calloc((size_t)digests->bounds * digests->parts + 1, sizeof *digests->keys);
  digests->unproven = calloc((size_t)digests->bounds + 1, 1);
  return digests->keys && digests->unproven && read_bounds(digests, &given);
}

Digests *ts_digests_new(const u8 *bounds, size_t size, u32 most_cells, const u8 *secret, int is_folded) {
  Digests *digests = calloc(1, sizeof *digests);
  if (!digests) return NULL;
  digests->blocks = sha256_blocks();
  memcpy(digests->secret, secret, SCAN_SECRET);
  digests->most_cells = most_cells;
  digests->is_folded = is_folded;
  digests->last_owner = NONE;
  if (begin(digests, bounds, size)) return digests;
  ts_digests_free(digests);
  return NULL;
}

void ts_digests_free(Digests *digests) {
  if (!digests) return;
  free(digests->memory);
  free(digests->keys);
  free(digests->unproven);
  free(digests->labels.bytes);
  free(digests->owners.bytes);
  free(digests->cells.bytes);
  free(digests->by_label.places);
  free(digests->by_place.places);
  free(digests);
}

u32 digests_parts(const Digests *digests) { return digests->parts; }
int digests_is_number(const Digests *digests, u32 part) { return digests->is_number[part]; }

u32 digests_range(const Digests *digests, const KeyPart *key) {
  u32 low = 0, high = digests->bounds;
  while (low < high) {
    u32 middle = low + (high - low) / 2;
    if (compared(digests, digests->keys + (size_t)middle * digests->parts, key) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// ---- cells and owners, found by their hashes

static u64 mixed(u64 value) {
  value = (value ^ value >> 31) * 0x9E3779B97F4A7C15ull;
  return value ^ value >> 29;
}

static u64 hash_of_text(Span text) {
  u64 hash = text.size;
  for (size_t i = 0; i < text.size; i++) hash = (hash ^ text.bytes[i]) * 0x100000001B3ull;
  return mixed(hash);
}

static u64 hash_of_place(u32 range, u32 owner) { return mixed((u64)range << 32 | owner); }

static Owner *owner_at(const Digests *digests, u32 number) { return (Owner *)digests->owners.bytes + number; }
static Cell *cell_at(const Digests *digests, u32 number) { return (Cell *)digests->cells.bytes + number; }

static Span label_of(const Digests *digests, u32 number) {
  const Owner *owner = owner_at(digests, number);
  return (Span){digests->labels.bytes + owner->at, owner->size};
}

static void put(Table *table, u64 hash, u32 number) {
  u32 place = (u32)hash & (table->room - 1);
  while (table->places[place] != NONE) place = (place + 1) & (table->room - 1);
  table->places[place] = number;
}

// Makes room for one more; what is there is put in again by `hash_of`.
static int widened(Table *table, const Digests *digests, u64 (*hash_of)(const Digests *, u32)) {
  if (table->used * 2 < table->room) return 1;
  if (table->room > NONE / 4) return 0;
  Table wide = {NULL, table->room ? table->room * 2 : SMALLEST, table->used};
  wide.places = malloc(wide.room * sizeof *wide.places);
  if (!wide.places) return 0;
  memset(wide.places, 0xFF, wide.room * sizeof *wide.places);
  for (u32 number = 0; number < table->used; number++) put(&wide, hash_of(digests, number), number);
  free(table->places);
  *table = wide;
  return 1;
}

static u64 hash_of_owner(const Digests *digests, u32 number) { return hash_of_text(label_of(digests, number)); }

static u64 hash_of_cell(const Digests *digests, u32 number) {
  return hash_of_place(cell_at(digests, number)->range, cell_at(digests, number)->owner);
}

static u32 new_owner(Digests *digests, Span label, u64 hash) {
  Owner owner = {.at = digests->labels.size, .size = (u32)label.size};
  u8 input[SCAN_SECRET + SCAN_LABEL], key[DIGEST];
  if (label.size > SCAN_LABEL) return NONE;
  memcpy(input, digests->secret, SCAN_SECRET);
  memcpy(input + SCAN_SECRET, label.bytes, label.size);
  sha256(digests->blocks, input, SCAN_SECRET + label.size, key);
  memcpy(owner.key, key, SCAN_SECRET);
  buffer_add(&digests->labels, label.bytes, label.size);
  buffer_add(&digests->owners, &owner, sizeof owner);
  if (digests->labels.failed || digests->owners.failed) return NONE;
  put(&digests->by_label, hash, digests->by_label.used);
  return digests->by_label.used++;
}

// The number of an owner; NONE where there is no memory, and of a new one where no cell is left for it.
static u32 owner_of(Digests *digests, Span label, int is_full) {
  if (digests->last_owner != NONE && span_same(label, label_of(digests, digests->last_owner))) return digests->last_owner;
  if (!widened(&digests->by_label, digests, hash_of_owner)) return NONE;
  u64 hash = hash_of_text(label);
  const Table *table = &digests->by_label;
  for (u32 place = (u32)hash & (table->room - 1); table->places[place] != NONE; place = (place + 1) & (table->room - 1))
    if (span_same(label, label_of(digests, table->places[place]))) return digests->last_owner = table->places[place];
  return is_full ? NONE : (digests->last_owner = new_owner(digests, label, hash));
}

static Cell *new_cell(Digests *digests, u32 range, u32 owner) {
  if (!widened(&digests->by_place, digests, hash_of_cell)) return NULL;
  Cell cell = {.range = range, .owner = owner};
  buffer_add(&digests->cells, &cell, sizeof cell);
  if (digests->cells.failed) return NULL;
  put(&digests->by_place, hash_of_place(range, owner), digests->by_place.used);
  return cell_at(digests, digests->by_place.used++);
}

static Cell *known_cell(const Digests *digests, u32 range, u32 owner) {
  const Table *table = &digests->by_place;
  if (!table->room) return NULL;
  u32 place = (u32)hash_of_place(range, owner) & (table->room - 1);
  for (; table->places[place] != NONE; place = (place + 1) & (table->room - 1)) {
    Cell *cell = cell_at(digests, table->places[place]);
    if (cell->range == range && cell->owner == owner) return cell;
  }
  return NULL;
}

// ---- rows

static u64 number_of(const u8 *bytes) {
  u64 value = 0;
  for (int i = 0; i < 8; i++) value = value << 8 | bytes[i];
  return value;
}

static void add_to_sum(u64 *sum_high, u64 *sum_low, u64 high, u64 low) {
  *sum_low += low;
  *sum_high += high + (*sum_low < low);
}

typedef struct {
  u64 shown_high, shown_low, keyed_high, keyed_low;
} Numbers;

// Rows can be chosen so that sums of their digests agree; sums of a function whose key is drawn later cannot be met.
// It must be a pseudo-random function: sums of a product or XOR with the key agree where the plain sums agree. Its key
// is one of the owner, so that the same rows of other owners have another sum, also where owners are folded.
static Numbers numbers_of(const Digests *digests, u32 owner, Span content) {
  u8 input[SCAN_SECRET + DIGEST], keyed[DIGEST], *digest = input + SCAN_SECRET;
  memcpy(input, owner_at(digests, owner)->key, SCAN_SECRET);
  sha256(digests->blocks, content.bytes, content.size, digest);
  sha256(digests->blocks, input, sizeof input, keyed);
  return (Numbers){number_of(digest), number_of(digest + 8), number_of(keyed), number_of(keyed + 8)};
}

static void add_row(Cell *cell, const Row *row, size_t size, const Numbers *numbers) {
  if (size > cell->largest) cell->largest = size;
  if (row->expired) {
    cell->expired++;
    return;
  }
  cell->count++;
  cell->ignored += (u64)row->is_partial;
  cell->xor_high ^= numbers->shown_high;
  cell->xor_low ^= numbers->shown_low;
  add_to_sum(&cell->sum_high, &cell->sum_low, numbers->shown_high, numbers->shown_low);
  add_to_sum(&cell->keyed_high, &cell->keyed_low, numbers->keyed_high, numbers->keyed_low);
}

// The number of a cell; NONE where there is no memory, and of a new one where there are too many.
static u32 cell_of(Digests *digests, u32 range, u32 owner, int is_full) {
  Cell *cell = known_cell(digests, range, owner);
  if (!cell && !is_full) cell = new_cell(digests, range, owner);
  return cell ? (u32)(cell - cell_at(digests, 0)) : NONE;
}

int digests_add(Digests *digests, u32 range, const Row *row, Span content) {
  digests->rows++;
  digests->last_cell = digests->last_total = NONE;
  int is_full = digests->by_place.used >= digests->most_cells;
  u32 owner = owner_of(digests, row->owner, is_full), cell = NONE, total = NONE;
  if (owner != NONE) cell = cell_of(digests, range, digests->is_folded ? NONE : owner, is_full);
  if (cell != NONE && digests->is_folded) total = cell_of(digests, NONE, owner, is_full);
  // What has an owner for each row would take as much memory as the rows.
  if (cell == NONE || (digests->is_folded && total == NONE)) {
    digests->unproven[range] = 1;
    return is_full;
  }
  Numbers numbers = {0};
  if (!row->expired) numbers = numbers_of(digests, owner, content);
  add_row(cell_at(digests, cell), row, content.size, &numbers);
  if (digests->is_folded) add_row(cell_at(digests, total), row, content.size, &numbers);
  if (row->expired) return 1;
  digests->last_cell = cell;
  digests->last_total = total;
  return 1;
}

u32 digests_cell(const Digests *digests) { return digests->last_cell; }
u32 digests_total(const Digests *digests) { return digests->last_total; }

int digests_ask(const Sink *sink, u32 range, Span row) {
  if (!sink->unjudged) {
    // Whoever judges the others has to judge them all.
    if (sink->accepts) sink->digests->unproven[range] = 1;
    return 1;
  }
  buffer_add_u32(sink->unjudged, range);
  buffer_add_u32(sink->unjudged, (u32)row.size);
  buffer_add(sink->unjudged, row.bytes, row.size);
  return !sink->unjudged->failed;
}

void digests_unproven(Digests *digests, u32 range) {
  digests->rows++;
  digests->unproven[range] = 1;
}

void digests_beyond(Digests *digests) {
  digests_unproven(digests, 0);
  digests->unproven[digests->bounds] = 1;
}

void digests_unplaced(Digests *digests) {
  digests->rows++;
  digests->unplaced++;
}

// q rows, q unplaced; q ranges, a byte for each whether it is unproven; q owners, each u32 size and bytes; q cells,
// each u32 range, u32 owner, u64 count, expired, largest, ignored, low and high half of the XOR, of the sum, of the keyed sum.
// Where owners are folded, the owner of a range is TS_NO_CELL, and so is the range of all rows of an owner.
int ts_digests_read(const Digests *digests, Buffer *out) {
  buffer_add_i64(out, (i64)digests->rows);
  buffer_add_i64(out, (i64)digests->unplaced);
  buffer_add_i64(out, (i64)digests->bounds + 1);
  buffer_add(out, digests->unproven, (size_t)digests->bounds + 1);
  buffer_add_i64(out, digests->by_label.used);
  for (u32 number = 0; number < digests->by_label.used; number++) {
    Span label = label_of(digests, number);
    buffer_add_u32(out, (u32)label.size);
    buffer_add(out, label.bytes, label.size);
  }
  buffer_add_i64(out, digests->by_place.used);
  buffer_add(out, digests->cells.bytes, digests->cells.size);
  return out->failed ? TS_NO_MEMORY : 0;
}
