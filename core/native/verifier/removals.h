// Which rows past their instant are due for removal: those that hold one of some texts in each of some places.
#ifndef TWINSTORE_VERIFIER_REMOVALS_H
#define TWINSTORE_VERIFIER_REMOVALS_H

#include "verifier/input.h"

typedef struct {
  u32 place;        // the number of a column, or of a name on the top level
  u32 first, count; // of the texts
} Removal;

typedef struct {
  Removal *conditions;
  Span *texts;
  u32 count;
  u8 known; // whether the conditions say all; else no row past its instant can be judged
} Removals;

int removals_read(Removals *removals, Given *given, u32 places);
void removals_free(Removals *removals);

// Whether a value is one of the texts of a condition.
int removal_admits(const Removals *removals, const Removal *condition, Span value);

#endif
