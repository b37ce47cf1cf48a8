#include "copier/documents.h"

#include "copier/input.h"
#include "copier/judging.h"
#include "copier/text.h"

#define LEAST_SLOT (2 * 8)

static void read_layout(Input *input, Documents *documents) {
  u32 count = documents->program->slot_count;
  documents->identity = (u8)input_between(input, IDENTITY_SLOT, IDENTITY_GENERATED);
  documents->id_slot = (i32)input_between(input, -1, (i64)count - 1);
  documents->versioned = (u8)input_between(input, 0, 1);
  if ((documents->identity == IDENTITY_SLOT) != (documents->id_slot >= 0)) input->failed = 1;
  if (input_count(input, LEAST_SLOT, MOST_FIELDS) != count) input->failed = 1;
  StoredSlot *slots = input_room(input, count, sizeof(StoredSlot));
  for (u32 index = 0; slots && index < count; index++) {
    slots[index].name = input_text(input);
    slots[index].is_long = (u8)input_between(input, 0, 1);
    if (!slots[index].name.size != ((i32)index == documents->id_slot)) input->failed = 1;
  }
  documents->slots = slots;
  documents->skipped_count = input_count(input, 8, MOST_SKIPPED);
  Text *skipped = input_room(input, documents->skipped_count, sizeof(Text));
  for (u32 index = 0; skipped && index < documents->skipped_count; index++) skipped[index] = input_text(input);
  documents->skipped = skipped;
  documents->internal_count = (u32)input_between(input, 0, (i64)documents->skipped_count);
}

Documents *ts_documents_new(const Program *program, const u8 *layout, size_t size) {
  Input input = {layout, layout + size, NULL, 0};
  Documents *documents = input_room(&input, 1, sizeof(Documents));
  if (documents) {
    documents->program = program;
    read_layout(&input, documents);
  }
  if (input.failed || input.at != input.end) {
    blocks_free(input.blocks);
    return NULL;
  }
  documents->memory = input.blocks;
  return documents;
}

void ts_documents_free(Documents *documents) {
  if (documents) blocks_free(documents->memory);
}

// The slot of a stored name, -1 where there is none. Mostly it is the one behind the last one found.
static i32 slot_named(const Documents *documents, Text name, u32 guess) {
  u32 count = documents->program->slot_count;
  // That of `_id` is empty, and no name of a document stands for it.
  if (!name.size) return -1;
  for (u32 tried = 0; tried < count; tried++, guess++) {
    if (guess >= count) guess = 0;
    if (text_equal(documents->slots[guess].name, name)) return (i32)guess;
  }
  return -1;
}

// Skips what is no part of a row, once each, where a copy may leave it out. `partial` becomes 1 where that is ignored
// on request.
static int skip(const Documents *documents, u8 *seen, Text name, const Element *element, u32 *partial) {
  for (u32 index = 0; index < documents->skipped_count; index++) {
    if (!text_equal(documents->skipped[index], name)) continue;
    if (seen[index] || !comes_back(element)) return 0;
    if (index >= documents->internal_count) *partial = 1;
    return seen[index] = 1;
  }
  return 0;
}

// Whether an `_id` that is no slot is one that the driver may have written.
static int identity_fits(const Documents *documents, const Element *identity) {
  int plain;
  if (documents->identity == IDENTITY_GENERATED) return identity->type == BSON_ID;
  return identity->type == BSON_TEXT && text_points(text_in(identity), &plain) >= 0;
}

static const Text ID = {(const u8 *)"_id", 3};

// Reads `_id`, which every server puts in front of all else; a decoder does not give back another order.
static int find_identity(const Documents *documents, Walk *walk, Element *found) {
  Text name;
  Element identity;
  if (walk->at >= walk->stop || !walk_next(walk, &name, &identity) || !text_equal(name, ID)) return 0;
  if (documents->id_slot < 0) return identity_fits(documents, &identity);
  found[documents->id_slot] = identity;
  return 1;
}

// Finds the element of each slot; 0 where a name is unknown or stands twice, or there is no `_id`.
static int find_slots(const Documents *documents, Walk walk, Element *found, u32 *partial) {
  u8 seen[MOST_SKIPPED];
  u32 guess = 0;
  memset(seen, 0, documents->skipped_count);
  for (u32 slot = 0; slot < documents->program->slot_count; slot++) found[slot].type = 0;
  if (!find_identity(documents, &walk, found)) return 0;
  while (walk.at < walk.stop) {
    Text name;
    Element element;
    if (!walk_next(&walk, &name, &element)) return 0;
    i32 slot = slot_named(documents, name, guess);
    if (slot < 0) {
      if (!skip(documents, seen, name, &element, partial)) return 0;
      continue;
    }
    if (found[slot].type) return 0;
    found[slot] = element;
    guess = (u32)slot + 1;
  }
  return 1;
}

// Reads one document of which the length is known to fit.
static int read_document(const Documents *documents, Checker *checker, const u8 *document, u32 size, Buffer *rows,
                         u32 *partial) {
  Element found[MOST_FIELDS];
  *partial = 0;
  return find_slots(documents, walk_of(document, size), found, partial) && check_row(checker, found, rows);
}

static void add_three(Buffer *buffer, size_t first, size_t second, size_t third) {
  const u32 numbers[] = {(u32)first, (u32)second, (u32)third};
  buffer_add(buffer, numbers, sizeof numbers);
}

i64 ts_read_documents(const Documents *documents, const u8 *raw, size_t size, Buffer *rows, Buffer *places,
                      Buffer *declined) {
  Checker checker;
  i64 count = 0;
  checker_init(&checker, documents->program);
  for (size_t at = 0; at < size;) {
    u32 partial, length = document_size(raw + at, size - at);
    size_t row = rows->size;
    // The reader of the places has 32 bits, and the highest one of the length says whether something is ignored.
    if (!length || length > INT32_MAX || at > UINT32_MAX || row > UINT32_MAX) return TS_BROKEN;
    if (read_document(documents, &checker, raw + at, length, rows, &partial)) {
      add_three(places, row, at, length | partial << 31);
      count++;
    } else {
      add_three(declined, at, length, (size_t)count);
    }
    if (rows->failed || places->failed || declined->failed) return TS_NO_MEMORY;
    at += length;
  }
  return count;
}

int ts_accepts_document(const Documents *documents, const u8 *document, size_t size, Buffer *scratch) {
  Checker checker;
  u32 partial;
  checker_init(&checker, documents->program);
  buffer_clear(scratch);
  return document_size(document, size) == size &&
         read_document(documents, &checker, document, (u32)size, scratch, &partial) && !checker.rewritten;
}
