// What the verifier shows and shares: stored rows become the content that a comparison reads, and digests of it.
//
// It shares no walk, no check and no conversion with the copier, so that a fault there cannot hide here. Only
// rows that stand exactly as a driver writes them are shown; of any other one its range is left unproven.
#ifndef TWINSTORE_VERIFIER_H
#define TWINSTORE_VERIFIER_H

#include "buffer.h"

// Parts of a key, levels of nesting, names of one object; what has more is declined.
#define SCAN_PARTS 4
#define SCAN_DEPTH 64
#define SCAN_NAMES 1000
// Bytes of a text in a key, and of the label of an owner; an id has fewer.
#define SCAN_KEY_TEXT 4096
#define SCAN_LABEL 256
// Bytes of the secret key of digests.
#define SCAN_SECRET 16
#define TS_NO_CELL 0xFFFFFFFFu

typedef struct {
  const u8 *bytes;
  size_t size;
} Span;

static inline int span_same(Span left, Span right) {
  return left.size == right.size && (!left.size || !memcmp(left.bytes, right.bytes, left.size));
}

// A part of a key: a number, or a text where it has bytes.
typedef struct {
  i64 number;
  Span text;
} KeyPart;

typedef struct Digests Digests;
typedef struct DocumentForm DocumentForm;
typedef struct TableForm TableForm;
typedef int (*Accepts)(const void *documents, const u8 *document, size_t size, Buffer *scratch);

// What a scan hands up beside the digests.
// unjudged: u32 range, u32 length, bytes of each document, or content of a line, of which nobody here says that the
// models accept it.
typedef struct {
  Digests *digests;
  i64 cutoff; // INT64_MIN: no row expires
  Accepts accepts; // NULL: nobody judges
  const void *documents;
  Buffer *unjudged; // NULL: nobody asks
  Buffer *cells; // of each document u32 the cells of its range and its owner, or TS_NO_CELL; NULL: nobody asks
} Sink;

// Ranges are cut at bounds: q parts of a key, list of q whether each is a number, list of keys (q or text).
TS_API Digests *ts_digests_new(const u8 *bounds, size_t size, u32 most_cells, const u8 *secret, int is_folded);
TS_API void ts_digests_free(Digests *digests);
// Writes what was added; the format stands at the function.
TS_API int ts_digests_read(const Digests *digests, Buffer *out);

// The bytes that twinstore.fast.forms writes; NULL for malformed ones and where there is no memory.
TS_API DocumentForm *ts_document_form_new(const u8 *bytes, size_t size);
TS_API void ts_document_form_free(DocumentForm *form);
TS_API TableForm *ts_table_form_new(const u8 *bytes, size_t size);
TS_API void ts_table_form_free(TableForm *form);

// Add rows: whole BSON documents, or lines of a COPY in text form. Answer: rows, TS_BROKEN or TS_NO_MEMORY.
TS_API i64 ts_scan_documents(const DocumentForm *form, const u8 *raw, size_t size, const Sink *sink);
TS_API i64 ts_scan_lines(const TableForm *form, const u8 *raw, size_t size, const Sink *sink);

// For tests: the content of one row, 1; 0 where it is declined.
TS_API i64 ts_show_document(const DocumentForm *form, const u8 *raw, size_t size, Buffer *content);
TS_API i64 ts_show_line(const TableForm *form, const u8 *raw, size_t size, Buffer *content);
TS_API void ts_sha256(const u8 *bytes, size_t size, u8 *digest, int portable);

#endif
