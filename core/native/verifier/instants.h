// Instants as the server writes them.
#ifndef TWINSTORE_VERIFIER_INSTANTS_H
#define TWINSTORE_VERIFIER_INSTANTS_H

#include "verifier/verifier.h"

// The milliseconds since 1970 of a text such as 2025-10-26 14:05:00.123+00; 0 for any other text.
int instant_read(Span text, i64 *milliseconds);

#endif
