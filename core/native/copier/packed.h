// Walking over packed rows. They come from this library, and are checked all the same where it costs nothing.
#ifndef TWINSTORE_COPIER_PACKED_H
#define TWINSTORE_COPIER_PACKED_H

#include "copier/program.h"

static inline u32 read_u32(const u8 *bytes) {
  u32 value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

static inline i64 read_i64(const u8 *bytes) {
  i64 value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

static inline void write_u32(u8 *bytes, u32 value) { memcpy(bytes, &value, sizeof value); }

// A packed value: `bytes` is the value of TEXT and JSON without its length, of others the number.
typedef struct {
  const u8 *bytes;
  u32 size;
  u8 tag;
} Packed;

// The end of the row at `at`, NULL where there is no whole row before `end`.
static inline const u8 *row_end(const u8 *at, const u8 *end) {
  if (end - at < 4) return NULL;
  u32 size = read_u32(at);
  return size < 4 || size > (size_t)(end - at) ? NULL : at + size;
}

// Reads one value and answers where the next one begins, NULL where it does not fit before `end`.
static inline const u8 *packed_value(const u8 *at, const u8 *end, Packed *value) {
  static const u8 sizes[] = {[TAG_INT] = 8, [TAG_FLAG] = 1, [TAG_INSTANT] = 8, [TAG_ENUM] = 1, [TAG_NUMBER] = 8};
  if (at >= end) return NULL;
  value->tag = *at++;
  if (value->tag == TAG_TEXT || value->tag == TAG_JSON) {
    if (end - at < 4) return NULL;
    value->size = read_u32(at);
    at += 4;
  } else {
    if (value->tag > TAG_NUMBER) return NULL;
    value->size = sizes[value->tag];
  }
  if (value->size > (size_t)(end - at)) return NULL;
  value->bytes = at;
  return at + value->size;
}

// Reads the values of the row at `at` into `values`, one for each slot; answers its end, NULL where it is broken.
static inline const u8 *packed_row(const Program *program, const u8 *at, const u8 *end, Packed *values) {
  const u8 *stop = row_end(at, end);
  if (!stop) return NULL;
  at += 4;
  for (u32 slot = 0; slot < program->slot_count; slot++) {
    at = packed_value(at, stop, &values[slot]);
    if (!at) return NULL;
  }
  return at == stop ? stop : NULL;
}

#endif
