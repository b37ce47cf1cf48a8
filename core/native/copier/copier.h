// What the copier shows: rows of a store become packed rows, and packed rows become rows of the other store.
//
// A packed row is its size (u32, of the whole row) and for each slot of the program a tag (u8) and the value.
// All numbers are little-endian. Functions that fill buffers answer a number of rows, TS_BROKEN or TS_NO_MEMORY.
#ifndef TWINSTORE_COPIER_H
#define TWINSTORE_COPIER_H

#include "buffer.h"

// Tags of packed values.
enum {
  TAG_ABSENT = 0,
  TAG_TEXT = 1,    // u32 length, bytes
  TAG_INT = 2,     // i64
  TAG_FLAG = 3,    // u8
  TAG_INSTANT = 4, // i64, milliseconds since 1970
  TAG_JSON = 5,    // u32 length, canonical JSON, with the fields of models as PostgreSQL orders names
  TAG_ENUM = 6,    // u8, position in the texts of the node
  TAG_NUMBER = 7,  // f64
};

typedef struct Program Program;
typedef struct Documents Documents;
typedef struct Columns Columns;

// The bytes of twinstore.fast.program; NULL for malformed ones and where there is no memory.
TS_API Program *ts_program_new(const u8 *bytes, size_t size);
TS_API void ts_program_free(Program *program);

// How documents hold the slots: q identity kind, q slot of `_id` (-1), q versioned, list per slot: text stored name
// (empty for `_id`), q whether it always has 64 bits; list of the stored names that are no part of a row, q how
// many of these are internal; the others are ignored on request. The program must outlive what is made here.
TS_API Documents *ts_documents_new(const Program *program, const u8 *layout, size_t size);
TS_API void ts_documents_free(Documents *documents);

// Reads BSON documents that lie one behind the other.
// places: for each packed row u32 where it lies in `rows`, u32 where its document lies in `raw`, u32 length of that.
// declined: for each other document u32 where it lies, u32 its length, u32 packed rows of this call before it.
TS_API i64 ts_read_documents(const Documents *documents, const u8 *raw, size_t size, Buffer *rows, Buffer *places,
                             Buffer *declined);

// Whether a document would be packed, and a copy of it holds the same values; `scratch` is cleared and filled.
TS_API int ts_accepts_document(const Documents *documents, const u8 *document, size_t size, Buffer *scratch);

// Counts packed rows by owner and finds the expired ones; TS_BROKEN where the keys do not strictly rise.
// counts: for each owner u32 length (NO_TENANT where there is none), bytes, u64 rows, u64 expired ones among them.
// expired: u32 number of each row whose instant of removal is at most `cutoff` (INT64_MIN: none is).
#define NO_TENANT 0xFFFFFFFFu
TS_API i64 ts_examine(const Program *program, const u8 *rows, size_t size, i64 cutoff, Buffer *counts, Buffer *expired);

// Writes the rows whose numbers are not among `indexes`, which rise.
TS_API i64 ts_without(const u8 *rows, size_t size, const u32 *indexes, size_t count, Buffer *out);

// How a table holds the slots: list per column of q slot, q kind, text of what an absent value is stored as.
TS_API Columns *ts_columns_new(const Program *program, const u8 *layout, size_t size);
TS_API void ts_columns_free(Columns *columns);

// Writes rows of a binary COPY, without its header and trailer.
TS_API i64 ts_write_copy(const Columns *columns, const u8 *rows, size_t size, Buffer *out);

// Reads rows of a binary COPY; places and declined as of ts_read_documents.
TS_API i64 ts_read_copy(const Columns *columns, const u8 *data, size_t size, Buffer *rows, Buffer *places,
                        Buffer *declined);

// Writes the documents that the driver would write; `ids` has 12 bytes for each row where `_id` is generated.
// places: for each document u32 where it ends in `out`, u32 where its row begins in `rows`, u32 where that ends. declined: u32 number of each row that has none.
TS_API i64 ts_write_documents(const Documents *documents, const u8 *rows, size_t size, const u8 *ids, Buffer *out,
                              Buffer *ends, Buffer *declined);

#endif
