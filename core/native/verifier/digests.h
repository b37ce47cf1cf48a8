// Digests of rows by range and owner.
#ifndef TWINSTORE_VERIFIER_DIGESTS_H
#define TWINSTORE_VERIFIER_DIGESTS_H

#include "verifier/verifier.h"

// A row that is shown.
typedef struct {
  KeyPart key[SCAN_PARTS];
  Span owner; // its label
  int expired;
  int is_partial; // a name of it is ignored
} Row;

u32 digests_parts(const Digests *digests);
int digests_is_number(const Digests *digests, u32 part);
// How many bounds are not beyond a key.
u32 digests_range(const Digests *digests, const KeyPart *key);

// Adds a row; 0 where there is no memory.
int digests_add(Digests *digests, u32 range, const Row *row, Span content);
// The number of the cell that counts the row which was added last, TS_NO_CELL where none does.
u32 digests_cell(const Digests *digests);
// Where owners are folded, the number of the cell of its owner.
u32 digests_total(const Digests *digests);

// Hands up a row that nobody here has judged: a document as it is stored, of a line its content; 0 where there is no
// memory.
int digests_ask(const Sink *sink, u32 range, Span row);

// Of a row that is not added: of one range; before all ranges or behind them; anywhere.
void digests_unproven(Digests *digests, u32 range);
void digests_beyond(Digests *digests);
void digests_unplaced(Digests *digests);

#endif
