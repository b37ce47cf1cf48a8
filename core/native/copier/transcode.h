// JSON text as BSON values, guided by the nodes of a program: instants become dates, and whole numbers take as
// many bits as they need. What JSON means is certain here or it is declined; whether it is canonical is for
// others to judge.
#ifndef TWINSTORE_COPIER_TRANSCODE_H
#define TWINSTORE_COPIER_TRANSCODE_H

#include "copier/write_bson.h"

typedef struct {
  const Program *program;
  const u8 *at, *end;
  Buffer *out;
  Buffer *members; // places of the members of objects that are still open
  u32 depth;
  u8 is_long; // whole numbers always take 64 bits
} Transcoder;

// Adds the value of a whole JSON text and answers its type of BSON, 0 where it is declined; what was added then
// is for the caller to take back. Fields of models come out in canonical order, names of maps
// and free JSON in the order of their bytes.
u8 transcode(Transcoder *transcoder, const Node *node, Text json);

// The milliseconds since 1970 of a text exactly as twinstore.models.json_text.format_timestamp writes it; 0 where it is none.
int read_instant(Text text, i64 *milliseconds);

#endif
