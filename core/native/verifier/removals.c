#include "verifier/removals.h"

#include <stdlib.h>

int removals_read(Removals *removals, Given *given, u32 places) {
  u32 next = 0;
  removals->known = (u8)given_below(given, 2);
  removals->count = given_count(given);
  u32 texts = given_count(given);
  removals->conditions = given_room(removals->count, sizeof *removals->conditions);
  removals->texts = given_room(texts, sizeof *removals->texts);
  if (!removals->conditions || !removals->texts) return 0;
  for (u32 number = 0; number < removals->count; number++) {
    Removal *condition = removals->conditions + number;
    condition->place = given_below(given, places);
    condition->first = next;
    condition->count = given_below(given, (i64)texts - next + 1);
    for (u32 text = 0; text < condition->count; text++) removals->texts[next++] = given_text(given);
  }
  return !given->broken;
}

void removals_free(Removals *removals) {
  free(removals->conditions);
  free(removals->texts);
}

int removal_admits(const Removals *removals, const Removal *condition, Span value) {
  for (u32 text = 0; text < condition->count; text++)
    if (span_same(removals->texts[condition->first + text], value)) return 1;
  return 0;
}
