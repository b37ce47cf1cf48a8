// How a table holds the slots of a program. Made once and never changed, so that all threads may use it. The kinds
// are those of twinstore.fast.records.
#ifndef TWINSTORE_COPIER_COLUMNS_H
#define TWINSTORE_COPIER_COLUMNS_H

#include "copier/program.h"

// Beyond these a layout counts as malformed.
#define MOST_COLUMNS 512
#define MOST_SLOTS 512

typedef enum {
  COLUMN_TEXT,
  COLUMN_INT2,
  COLUMN_INT4,
  COLUMN_INT8,
  COLUMN_JSONB,
  COLUMN_TIMESTAMPTZ,
  COLUMN_BOOL,
  COLUMN_TEXTS,
  COLUMN_INT4S,
  COLUMN_INT8S,
  COLUMN_FLOAT8,
  COLUMN_UUID,
  COLUMN_ENUM,    // stored as the members say: a number or a text
  COLUMN_PAYLOAD, // JSONB of the whole model
  COLUMN_NUMERIC,
  COLUMN_BYTEA,
  COLUMN_KINDS,
} ColumnKind;

typedef struct {
  ColumnKind kind;
  i32 slot; // -1: none, as of a payload and of what follows from other columns
  // Whole fields of COPY, that is with their length before them: of an absent value, empty where none may be
  // absent, and of each text of an enumeration by its position.
  Text absent;
  const Text *members;
  u32 member_count;
} Column;

struct Columns {
  const Program *program;
  const Column *columns;
  u32 count;
  const Text *names; // of a payload: `"name":` of each field of the model
  void *memory;
};

// Numbers of COPY are in network order.
static inline u16 read_be16(const u8 *at) { return (u16)(at[0] << 8 | at[1]); }

static inline u32 read_be32(const u8 *at) {
  u32 value;
  memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}

static inline u64 read_be64(const u8 *at) {
  u64 value;
  memcpy(&value, at, sizeof value);
  return __builtin_bswap64(value);
}

static inline void write_be32(u8 *at, u32 value) {
  value = __builtin_bswap32(value);
  memcpy(at, &value, sizeof value);
}

static inline void write_be64(u8 *at, u64 value) {
  value = __builtin_bswap64(value);
  memcpy(at, &value, sizeof value);
}

// Milliseconds from 1970 to 2000, where instants of the server begin.
#define SERVER_EPOCH 946684800000LL
// Of a numeric: the bytes before its groups of four digits, and what its sign is.
#define NUMERIC_HEAD 8
#define NUMERIC_GROUP 4
#define NUMERIC_NEGATIVE 0x4000
// The types of the items of arrays, as the catalog of the server numbers them.
enum { OID_TEXT = 25, OID_INT4 = 23, OID_INT8 = 20 };

#endif
