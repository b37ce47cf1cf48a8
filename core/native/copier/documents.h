// How the documents of one entity hold the slots of its program.
#ifndef TWINSTORE_COPIER_DOCUMENTS_H
#define TWINSTORE_COPIER_DOCUMENTS_H

#include "copier/program.h"

#define MOST_SKIPPED 256

enum { IDENTITY_SLOT, IDENTITY_JOINED, IDENTITY_GENERATED };

typedef struct {
  Text name; // as stored; of `_id` empty
  u8 is_long;
} StoredSlot;

struct Documents {
  const Program *program;
  u8 identity, versioned;
  i32 id_slot; // -1 where `_id` is no slot
  const StoredSlot *slots;
  const Text *skipped; // names that are no part of a row
  u32 skipped_count, internal_count; // behind the internal names those that are ignored on request
  void *memory;
};

#endif
