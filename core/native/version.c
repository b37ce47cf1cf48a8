#include "buffer.h"

#ifndef TS_VERSION
#error "TS_VERSION is the digest of the sources; hatch_build.py gives it"
#endif
// Programs, packed rows and both wire formats are read as they lie in memory.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || UINTPTR_MAX < UINT64_MAX
#error "the fast path needs a little-endian machine with 64 bits"
#endif

// Compared with the sources of a checkout, so that none runs with a library of other sources.
TS_API const char *ts_version(void) { return TS_VERSION; }
